"""A multilayer perceptron that learns a photograph, the color at each place, in plain Keras."""

import argparse

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_sample_image

OPTIMIZERS = {
    "sgd": keras.optimizers.SGD,
    "momentum": lambda **settings: keras.optimizers.SGD(momentum=0.9, **settings),
    "rmsprop": keras.optimizers.RMSprop,
    "adam": keras.optimizers.Adam,
}

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--optimizer", choices=sorted(OPTIMIZERS), default="adam")
parser.add_argument("--batch_size", type=int, default=32)
parser.add_argument("--learning_rate", type=float, default=1e-3)
parser.add_argument("--weight_decay", type=float, default=1e-3)
parser.add_argument("--epochs", type=int, default=12)
arguments = parser.parse_args()

keras.utils.set_random_seed(0)
tf.config.threading.set_intra_op_parallelism_threads(1)

photograph = load_sample_image("china.jpg")[::7, ::7] / 255
height, width, _ = photograph.shape
places = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), -1)
shuffled = np.random.default_rng(0).permutation(height * width)
places, colors = places.reshape(-1, 2)[shuffled], photograph.reshape(-1, 3)[shuffled]
# A place as waves of several lengths, as positions are told to a transformer.
waves = places[:, :, None] * np.pi / 2.0 ** np.arange(1, 8)
features = np.concatenate([np.sin(waves), np.cos(waves)], -1).reshape(len(places), -1)

model = keras.Sequential(
    [
        keras.Input(features.shape[1:]),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(3, activation="sigmoid"),
    ]
)
optimizer = OPTIMIZERS[arguments.optimizer](
    learning_rate=arguments.learning_rate, weight_decay=arguments.weight_decay
)
model.compile(optimizer, "mean_squared_error")
model.fit(
    features,
    colors,
    batch_size=arguments.batch_size,
    epochs=arguments.epochs,
    validation_split=0.2,
    verbose=2,
)
