"""Training scripts as users write them; none of them knows of Hermes.

Each prints one line that starts with FINAL, with everything that must come out the same.
"""

from __future__ import annotations

_HEAD = """
import hashlib, json, os
import keras
import numpy as np
import tensorflow as tf
from keras import callbacks, layers
{seed}
rng = np.random.default_rng()
x = rng.normal(size=(100, 6)).astype("float32")
y = x.sum(axis=1, keepdims=True) + rng.normal(size=(100, 1)).astype("float32")

def digest(model):
    parts = [np.ascontiguousarray(weight).tobytes() for weight in model.get_weights()]
    return hashlib.sha256(b"".join(parts)).hexdigest()

def final(model, *values):
    print("FINAL", json.dumps([digest(model), *values], default=lambda v: float(v).hex()))
"""

_SEEDED = """keras.utils.set_random_seed(11)
np.random.default_rng = lambda: np.random.Generator(np.random.PCG64(5))"""

# 4 epochs of 10 batches, the last one a short one; everything in it is stateful.
EVERYTHING = """
model = keras.Sequential([
    layers.Dense(8, activation="relu", kernel_regularizer="l2"),
    layers.BatchNormalization(), layers.Dropout(0.3), layers.GaussianNoise(0.1), layers.Dense(1),
])
model.compile(keras.optimizers.Adam(0.05), "mse", metrics=["mae"])
history = model.fit(
    x, y, batch_size=9, epochs=4, validation_split=0.12, verbose=2, callbacks=[
        callbacks.EarlyStopping(patience=3, restore_best_weights=True),
        callbacks.ReduceLROnPlateau(patience=1),
        callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
        callbacks.ModelCheckpoint("best.weights.h5", save_best_only=True, save_weights_only=True),
        callbacks.CSVLogger("log.csv"),
    ],
)
final(model, history.history, open("log.csv").read(), model.evaluate(x, y, verbose=0))
"""

# Its metrics need what its loss has computed in the same step.
OWN_LOSS = """
class Penal(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        self.penalty = keras.ops.mean(y_pred**2)
        return super().compute_loss(x, y, y_pred, sample_weight, training) + self.penalty
    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        logs = super().compute_metrics(x, y, y_pred, sample_weight)
        return {**logs, "penalty": self.penalty}
inputs = layers.Input((6,))
model = Penal(inputs, layers.Dense(1)(inputs))
model.compile("adam", "mse", metrics=["mae"])
model.fit(x, y, batch_size=20, epochs=1, verbose=0)
final(model)
"""

# More outputs in training than else.
OUTPUTS_IN_TRAINING = """
class Two(keras.Model):
    def __init__(self):
        super().__init__()
        self.one, self.other = layers.Dense(1), layers.Dense(1)
    def call(self, x, training=False):
        return [self.one(x), self.other(x)] if training else self.one(x)
model = Two()
model(x[:2], training=True)
model.compile("adam", ["mse", "mae"])
model.fit(x, [y, y], batch_size=20, epochs=1, verbose=0)
final(model)
"""

# What a trace draws is the same in each step of its graph, which is that of the second trace.
NUMBERS_IN_THE_GRAPH = """
class Moved(layers.Layer):
    def call(self, x, training=False):
        return x + np.random.normal(size=(6,)).astype("float32") if training else x
model = keras.Sequential([layers.Input((6,)), Moved(), layers.Dense(1)])
model.compile("adam", "mse")
model.fit(x, y, batch_size=20, epochs=1, verbose=0)
final(model)
"""

# A subclassed, unbuilt model; two fits of other batch sizes, an evaluation and a change between.
TWO_FITS = """
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.one, self.drop, self.two = layers.Dense(7), layers.Dropout(0.2), layers.Dense(1)
    def call(self, x, training=False):
        return self.two(self.drop(self.one(x), training=training))

model = Net()
model.compile("adam", "mse")
first = model.fit(x, y, batch_size=16, epochs=2, verbose=0, validation_data=(x[:20], y[:20]))
between = model.evaluate(x, y, batch_size=30, verbose=0)
model.optimizer.learning_rate = 0.02
second = model.fit(x, y, batch_size=25, epochs=3, verbose=0, callbacks=[
    callbacks.EarlyStopping("loss", patience=1)])
final(model, first.history, between, second.history, model.predict(x[:3], verbose=0).sum())
"""

# One pass over the data lasts one and a half epochs; several steps per execution.
LONG_PASSES = """
model = keras.Sequential([layers.Input((6,)), layers.Dense(5, activation="tanh"), layers.Dense(1)])
model.compile("sgd", "mse", steps_per_execution=2)
history = model.fit(x, y, batch_size=10, epochs=3, steps_per_epoch=6, verbose=0)
final(model, history.history)
"""

# A step of the program's own, whose loss Keras never sees.
OWN_STEP = """
class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense, self.tracker = layers.Dense(1), keras.metrics.Mean(name="loss")
    def call(self, x):
        return self.dense(x)
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.abs(self(x) - y))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}

model = Own()
model.compile("adam")
history = model.fit(x, y, batch_size=20, epochs=3, verbose=0)
final(model, history.history)
"""

# As Keras' guide on one's own steps has it: the compiled metrics are a dictionary in the logs.
NESTED_LOGS = """
def nested(logs):
    return {"loss": logs["loss"], "compile_metrics": {"mae": logs["mae"]}}

class Own(keras.Model):
    def train_step(self, *given):
        done = super().train_step(*given)
        return nested(done) if isinstance(done, dict) else (nested(done[0]), *done[1:])
    def test_step(self, *given):
        done = super().test_step(*given)
        return nested(done) if isinstance(done, dict) else (nested(done[0]), *done[1:])

inputs = layers.Input((6,))
model = Own(inputs, layers.Dense(1)(inputs))
model.compile("adam", "mse", metrics=["mae"])
history = model.fit(x, y, batch_size=20, epochs=3, verbose=0, validation_data=(x[:20], y[:20]))
final(model, history.history, str(model.evaluate(x, y, verbose=0, return_dict=True)))
"""

# Two parts with an optimizer each, and averages of weights: variables that Keras does not list.
TWO_OPTIMIZERS = """
class Pair(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.second = layers.Dense(4), layers.Dense(1)
        self.rates = [keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.01, momentum=0.9)]
        self.averages = [tf.Variable(tf.zeros(shape)) for shape in ((6, 4), (4,), (4, 1), (1,))]
    def call(self, x):
        return self.second(self.first(x))
    def train_step(self, data):
        x, y = data
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean((self(x) - y) ** 2)
        for rate, part in zip(self.rates, (self.first, self.second)):
            gradients = tape.gradient(loss, part.trainable_weights)
            rate.apply_gradients(zip(gradients, part.trainable_weights))
        distance = 0.0
        for average, weight in zip(self.averages, self.trainable_weights):
            average.assign(0.9 * average + 0.1 * weight)
            distance += tf.reduce_sum((average - weight) ** 2)
        return {"loss": loss, "distance": distance}

model = Pair()
model.compile()
history = model.fit(x, y, batch_size=20, epochs=3, verbose=0)
final(model, history.history, [average.numpy().tolist() for average in model.averages])
"""

# tf.data whose order depends on a seed, read through a parallel map; the rate decays by the step.
DATASET = """
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(50)
data = data.map(lambda x, y: (x * 2.0, y), num_parallel_calls=2).batch(17).prefetch(2)
model = keras.Sequential([layers.Dense(5), layers.Dropout(0.2), layers.Dense(1)])
decaying = keras.optimizers.schedules.ExponentialDecay(0.05, decay_steps=2, decay_rate=0.8)
model.compile(keras.optimizers.Adam(decaying), "mse")
history = model.fit(data, epochs=3, verbose=0)
final(model, history.history)
"""

# The usual pipeline: at the end of an epoch it has been read to its end ahead of the training.
PIPELINE = """
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(50).repeat(2).batch(17).prefetch(2)
model = keras.Sequential([layers.Dense(5), layers.Dropout(0.2), layers.Dense(1)])
model.compile("adam", "mse", steps_per_execution=2)
history = model.fit(data, epochs=3, verbose=0)
final(model, history.history)
"""

# Validation data that are shuffled, as those of `image_dataset_from_directory` are; the second fit
# goes on from an order that depends on how often the first one has read both.
SHUFFLED_VALIDATION = """
check = tf.data.Dataset.from_tensor_slices((x[60:], y[60:])).shuffle(40).batch(7).prefetch(1)
data = tf.data.Dataset.from_tensor_slices((x[:60], y[:60])).shuffle(60).batch(20)
model = keras.Sequential([layers.Dense(5), layers.Dense(1)])
model.compile("adam", "mse", metrics=["mae"])
first = model.fit(data, validation_data=check, epochs=3, verbose=0)
second = model.fit(data, validation_data=check, validation_steps=2, epochs=2, verbose=0)
third = model.fit(data, validation_data=check, epochs=1, verbose=0)
final(model, first.history, second.history, third.history)
"""

# Half precision: the scale of the loss grows and falls, and counts its steps.
MIXED = """
keras.mixed_precision.set_global_policy("mixed_float16")
model = keras.Sequential([layers.Dense(8, activation="relu"), layers.BatchNormalization(),
                          layers.Dense(1, dtype="float32")])
scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01), initial_scale=2.0**30,
                                             dynamic_growth_steps=3)
model.compile(scaled, "mse")
history = model.fit(x, y, batch_size=20, epochs=3, verbose=0)
final(model, history.history, scaled.dynamic_scale.numpy(), int(scaled.iterations.numpy()))
"""

# A callback that stops in the middle of an epoch.
STOPPED = """
class Stop(callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = self.model.stop_training or (batch == 3 and self.epoch == 1)
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

model = keras.Sequential([layers.Dense(5), layers.Dense(1)])
model.compile("adam", "mse")
history = model.fit(x, y, batch_size=20, epochs=4, verbose=0, callbacks=[Stop()])
final(model, history.history)
"""

# What a study asks for is on the command line; no callback ends it early. The average of the
# weights takes their place when a fit ends, and the best ones do: neither may reach a later epoch.
ASKED_FOR_EPOCHS = """
import sys
model = keras.Sequential([
    layers.Dense(8, activation="relu"), layers.BatchNormalization(), layers.Dropout(0.3),
    layers.Dense(1),
])
model.compile(keras.optimizers.Adam(0.05, use_ema=True, ema_momentum=0.5), "mse", metrics=["mae"])
history = model.fit(
    x, y, batch_size=9, epochs=int(sys.argv[1]), validation_split=0.12, verbose=0, callbacks=[
        callbacks.EarlyStopping(patience=9, restore_best_weights=True),
        callbacks.ReduceLROnPlateau(patience=1),
        callbacks.CSVLogger("log.csv"),
    ],
)
final(model, history.history, open("log.csv").read(), model.evaluate(x, y, verbose=0),
      np.random.random(), model.predict(x[:3], verbose=0).sum())
"""

# The first fit is asked for no more than it was; the second goes on over a pipeline.
SECOND_FIT_EXTENDED = """
import sys
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(50).batch(17).prefetch(2)
model = keras.Sequential([layers.Dense(5), layers.Dropout(0.2), layers.Dense(1)])
model.compile("adam", "mse", steps_per_execution=2)
first = model.fit(x, y, batch_size=25, epochs=2, verbose=0)
between = model.evaluate(x, y, verbose=0)
second = model.fit(data, epochs=int(sys.argv[1]), verbose=0, validation_data=(x, y))
final(model, first.history, between, second.history)
"""

STOPPED_EARLY = """
import sys
model = keras.Sequential([layers.Dense(1)])
model.compile("sgd", "mse")
history = model.fit(x, y, batch_size=20, epochs=int(sys.argv[1]), verbose=0, callbacks=[
    callbacks.EarlyStopping("loss", patience=0, min_delta=1e9)])
final(model, history.history)
"""

_SMALL_FIT = """
model = keras.Sequential([layers.Dense(4), layers.Dense(1)])
model.compile("sgd", "mse")
model.fit({data}, epochs=2, verbose=0)
final(model)
"""

# Data that Keras reads from Python. A PyDataset that shuffles its own indices after each epoch and
# draws noise from a generator of its own, and one that does it with NumPy's global numbers.
_ROWS = """
import sys
def numbers(seed):
    return np.random.Generator(np.random.PCG64(seed))

class Rows(keras.utils.PyDataset):
    def __init__(self, size, random, **kwargs):
        super().__init__(**kwargs)
        self.size, self.random, self.order = size, random, np.arange(100)
    def __len__(self):
        return 100 // self.size
    def __getitem__(self, index):
        rows = self.order[index * self.size : (index + 1) * self.size]
        return x[rows] + 0.1 * self.random.normal(size=(self.size, 6)), y[rows]
    def on_epoch_end(self):
        self.random.shuffle(self.order)

class Plain(keras.utils.PyDataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return x[index::4], y[index::4]

model = keras.Sequential([layers.Dense(5), layers.Dropout(0.2), layers.Dense(1)])
model.compile("adam", "mse")
epochs = int(sys.argv[1]) if sys.argv[1:] else 3
"""
OWN_NUMBERS = (
    _ROWS
    + """
history = model.fit(Rows(20, numbers(4)), epochs=epochs, verbose=0,
                    validation_data=Plain(), callbacks=[callbacks.ReduceLROnPlateau(patience=1)])
final(model, history.history)
"""
)
GLOBAL_NUMBERS = (
    _ROWS
    + """
history = model.fit(Rows(20, np.random, workers=0), epochs=epochs, verbose=0,
                    validation_data=Rows(25, numbers(3)))
final(model, history.history)
"""
)
ENDLESS = (
    _ROWS
    + """
def batches(random, size):
    while True:
        rows = random.permutation(100)[:size]
        yield x[rows] + 0.1 * random.normal(size=(size, 6)), y[rows]

history = model.fit(batches(numbers(1), 9), steps_per_epoch=5, epochs=epochs,
                    verbose=0, validation_data=batches(numbers(2), 20),
                    validation_steps=3)
final(model, history.history)
"""
)
# A generator that ends, and a fit of the same data after it.
ENDING = (
    _ROWS
    + """
def batches():
    for start in range(0, 100, 10):
        yield x[start : start + 10], y[start : start + 10] + np.random.normal()

first = model.fit(batches(), epochs=1, verbose=0)
rows = Rows(25, numbers(5))
second = model.fit(rows, epochs=2, verbose=0, shuffle=True)
third = model.fit(rows, epochs=2, verbose=0, steps_per_epoch=4)
final(model, first.history, second.history, third.history)
"""
)

# What cannot be brought back.
WORKERS = (
    _ROWS
    + """
model.fit(Rows(10, numbers(4), workers=2), epochs=2, verbose=0)
final(model)
"""
)

PARALLEL_AUGMENTATION = """
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(10)
data = data.map(lambda x, y: (x + tf.random.normal(tf.shape(x)), y), num_parallel_calls=4)
""" + _SMALL_FIT.format(data="data")

AUGMENTING_LAYER = """
noise = layers.GaussianNoise(0.5)
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(10)
data = data.map(lambda x, y: (noise(x, training=True), y), num_parallel_calls=4)
""" + _SMALL_FIT.format(data="data")

STATEFUL_STEP = """
class Noisy(layers.Layer):
    def call(self, x):
        return x + tf.random.normal(tf.shape(x))

model = keras.Sequential([Noisy(), layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, y, epochs=2, verbose=0)
final(model)
"""

EAGER = """
model = keras.Sequential([layers.Dense(1)])
model.compile("sgd", "mse", run_eagerly=True)
model.fit(x, y, epochs=2, verbose=0)
final(model)
"""


def program(body: str, seeded: bool) -> str:
    """The whole script."""
    return _HEAD.format(seed=_SEEDED if seeded else "") + body
