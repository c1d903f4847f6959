"""A small convolutional network on scikit-learn's hand-written digits, in plain Keras.

Nothing in here knows of Hermes: `python train.py --optimizer adam` is all it takes to run it.
"""

import argparse

import keras
import tensorflow as tf
from sklearn.datasets import load_digits

OPTIMIZERS = {
    "sgd": lambda **settings: keras.optimizers.SGD(**settings),
    "momentum": lambda **settings: keras.optimizers.SGD(momentum=0.9, **settings),
    "rmsprop": lambda **settings: keras.optimizers.RMSprop(**settings),
    "adam": lambda **settings: keras.optimizers.Adam(**settings),
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--optimizer", choices=sorted(OPTIMIZERS), default="adam")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--weight_decay", type=float, default=1e-3)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def build_model():
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.25),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def main():
    arguments = parse_arguments()
    keras.utils.set_random_seed(arguments.seed)
    # One thread: sums keep their order, so the figures are the same on any number of cores.
    tf.config.threading.set_intra_op_parallelism_threads(1)

    digits = load_digits()
    images = digits.images[..., None].astype("float32") / 16
    model = build_model()
    model.compile(
        optimizer=OPTIMIZERS[arguments.optimizer](
            learning_rate=arguments.learning_rate, weight_decay=arguments.weight_decay
        ),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    history = model.fit(
        images,
        digits.target,
        batch_size=arguments.batch_size,
        epochs=arguments.epochs,
        validation_split=0.2,
        verbose=2,
    ).history
    print(" ".join(f"{name}={values[-1]:.6f}" for name, values in sorted(history.items())))


if __name__ == "__main__":
    main()
