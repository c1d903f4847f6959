"""The trainings of hermes2021: three small networks on hand-written digits, in plain Keras.

They stand for those of the paper (an inception network, a plain stack of convolutions, one with
residual connections) at a thousandth of the size; penalties are added to the loss, as there. A
point is `optimizer:batch size:learning rate:weight decay`, its batch size one that is left out
(`sgd::0.001:0.1`) where it is a parameter of its own.
"""

import argparse
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from sklearn.datasets import load_digits

Tensor: TypeAlias = Any

OPTIMIZERS = {
    "sgd": keras.optimizers.SGD,
    "momentum": lambda rate: keras.optimizers.SGD(rate, momentum=0.9),
    "rmsprop": keras.optimizers.RMSprop,
    "adam": keras.optimizers.Adam,
}


def conv(images: Tensor, filters: int, size: int, decay: float) -> Tensor:
    return layers.Conv2D(
        filters, size, padding="same", activation="relu",
        kernel_regularizer=keras.regularizers.L2(decay),
    )(images)  # fmt: skip


def incep(images: Tensor, decay: float) -> Tensor:
    for filters in (8, 16):
        paths = [conv(images, filters, size, decay) for size in (1, 3, 5)]
        images = layers.MaxPooling2D()(layers.Concatenate()(paths))
    return images


def vgg(images: Tensor, decay: float) -> Tensor:
    for filters in (16, 32):
        images = conv(conv(images, filters, 3, decay), filters, 3, decay)
        images = layers.MaxPooling2D()(images)
    return images


def res(images: Tensor, decay: float) -> Tensor:
    images = conv(images, 16, 3, decay)
    for _ in range(3):
        images = layers.Add()([images, conv(conv(images, 16, 3, decay), 16, 3, decay)])
    return layers.GlobalAveragePooling2D()(images)


MODELS = {"incep": incep, "vgg": vgg, "res": res}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=sorted(MODELS), required=True)
    parser.add_argument("--point", required=True)
    parser.add_argument("--batch_size", type=int)
    parser.add_argument("--iterations", type=int, required=True)
    arguments = parser.parse_args()
    optimizer, of_point, rate, decay = arguments.point.split(":")
    batch = arguments.batch_size or int(of_point)
    keras.utils.set_random_seed(0)
    # One thread: sums keep their order, so that a training is the same each time.
    tf.config.threading.set_intra_op_parallelism_threads(1)

    digits = load_digits()
    chosen = np.random.default_rng(0).integers(
        len(digits.images), size=arguments.iterations * batch
    )
    images = layers.Input((8, 8, 1))
    features = layers.Flatten()(MODELS[arguments.model](images, float(decay)))
    model = keras.Model(images, layers.Dense(10, activation="softmax")(features))
    model.compile(OPTIMIZERS[optimizer](float(rate)), "sparse_categorical_crossentropy")
    model.fit(
        digits.images[chosen][..., None].astype("float32") / 16,
        digits.target[chosen],
        batch_size=batch,
        shuffle=False,
        verbose=0,
    )


if __name__ == "__main__":
    main()
