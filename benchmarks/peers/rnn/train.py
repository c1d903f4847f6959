"""A recurrent network that learns to predict the next character of a text, in plain Keras."""

import argparse

import keras
import numpy as np
import tensorflow as tf
from sklearn import datasets

OPTIMIZERS = {
    "sgd": keras.optimizers.SGD,
    "momentum": lambda **settings: keras.optimizers.SGD(momentum=0.9, **settings),
    "rmsprop": keras.optimizers.RMSprop,
    "adam": keras.optimizers.Adam,
}
LENGTH = 20

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--optimizer", choices=sorted(OPTIMIZERS), default="adam")
parser.add_argument("--batch_size", type=int, default=32)
parser.add_argument("--learning_rate", type=float, default=1e-3)
parser.add_argument("--weight_decay", type=float, default=1e-3)
parser.add_argument("--epochs", type=int, default=12)
arguments = parser.parse_args()

keras.utils.set_random_seed(0)
tf.config.threading.set_intra_op_parallelism_threads(1)

# What scikit-learn writes about three of its data sets.
about = (datasets.load_iris, datasets.load_breast_cancer, datasets.load_diabetes)
text = "".join(load().DESCR for load in about)
alphabet, codes = np.unique(list(text), return_inverse=True)
pieces = np.lib.stride_tricks.sliding_window_view(codes, LENGTH + 1)[::7]

model = keras.Sequential(
    [
        keras.Input((LENGTH,)),
        keras.layers.Embedding(len(alphabet), 32),
        keras.layers.GRU(64, return_sequences=True),
        keras.layers.Dense(len(alphabet), activation="softmax"),
    ]
)
optimizer = OPTIMIZERS[arguments.optimizer](
    learning_rate=arguments.learning_rate, weight_decay=arguments.weight_decay
)
model.compile(optimizer, "sparse_categorical_crossentropy")
model.fit(
    pieces[:, :-1],
    pieces[:, 1:],
    batch_size=arguments.batch_size,
    epochs=arguments.epochs,
    validation_split=0.2,
    verbose=2,
)
