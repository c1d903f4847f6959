"""Training loops of people's own, as they write them; none of them knows of Hermes.

Each prints one line that starts with FINAL, with everything that must come out the same.
"""

from __future__ import annotations

_HEAD = """
import hashlib, json, os
import numpy as np
import tensorflow as tf
{seed}
rng = np.random.default_rng()
x = rng.normal(size=(60, 6)).astype("float32")
y = x.sum(axis=1, keepdims=True) + rng.normal(size=(60, 1)).astype("float32")

def final(weights, *values):
    parts = [np.ascontiguousarray(weight).tobytes() for weight in weights]
    digest = hashlib.sha256(b"".join(parts)).hexdigest()
    print("FINAL", json.dumps([digest, *values], default=lambda v: float(v).hex()))
"""

_SEEDED = """tf.keras.utils.set_random_seed(11)
np.random.default_rng = lambda: np.random.Generator(np.random.PCG64(5))"""

# The beginners' loop: metrics are read and reset after each epoch, the best is remembered.
METRICS = """
import keras
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(60).batch(16).prefetch(2)
check = tf.data.Dataset.from_tensor_slices((x[:20], y[:20])).batch(20)
model = keras.Sequential([
    keras.layers.Dense(8, activation="relu"), keras.layers.BatchNormalization(),
    keras.layers.Dropout(0.3), keras.layers.Dense(1),
])
optimizer = keras.optimizers.Adam(0.05)
loss_of = keras.losses.MeanSquaredError()
mean, error = keras.metrics.Mean(), keras.metrics.MeanAbsoluteError()

@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = loss_of(y, model(x, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    mean(loss)
    error.update_state(y, model(x))
    {result}

@tf.function
def test_step(x, y):
    return loss_of(y, model(x))

history, best, seen = [], None, 0
for epoch in range(4):
    mean.reset_state()
    error.reset_state()
    for images, labels in data:
        train_step(images, labels)
        seen += int(images.shape[0]) + np.random.randint(5)
    checked = [float(test_step(*one)) for one in check]
    history.append([float(mean.result()), float(error.result()), sum(checked)])
    if best is None or checked[0] < best[0]:
        best = checked[0], epoch, model.get_weights()
    if epoch == 1:
        optimizer.learning_rate = 0.01
final(model.get_weights() + best[2], history, best[:2], seen, float(model(x[:3]).numpy().sum()))
"""
RETURNED = METRICS.format(result="return loss")
NOT_RETURNED = METRICS.format(result="return None")

# It looks at its metrics every few seconds, that is after other steps each time that it begins.
BY_THE_CLOCK = """
with open(__file__ + ".begun", "a") as file:
    file.write("x")
    beginning = file.tell()
""" + RETURNED.replace(
    """    for images, labels in data:
        train_step(images, labels)
""",
    """    for at, (images, labels) in enumerate(data):
        train_step(images, labels)
        if at % 3 == beginning % 3:
            print(float(mean.result()), [float(test_step(*one)) for one in check])
""",
)


_NETWORK = """
one = tf.Variable(tf.random.normal([6, 8], stddev=0.5), name="one")
two = tf.Variable(tf.random.normal([8, 1], stddev=0.5), name="two")
rate = tf.Variable(0.05, trainable=False)

def loss_of(x, y):
    return tf.reduce_mean((tf.matmul(tf.nn.tanh(tf.matmul(x, one)), two) - y) ** 2)

def step(x, y):
    with tf.GradientTape() as tape:
        loss = loss_of(x, y)
    for variable, gradient in zip((one, two), tape.gradient(loss, (one, two))):
        variable.assign_sub(rate * gradient)
    return loss
"""

# Without Keras: the step takes its batches from an iterator until that has no more; two kinds of
# shapes, a moving target that is assigned between the steps, a decaying rate.
ITERATOR = (
    _NETWORK
    + """
target = tf.Variable(one)
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(60).batch(16)

@tf.function(reduce_retracing=True)
def train(iterator):
    x, y = next(iterator)
    return {"loss": step(x, y), "size": tf.shape(x)[0], "name": "step"}

losses, rows = [], 0
for epoch in range(2):
    iterator = iter(data)
    while True:
        try:
            result = train(iterator)
        except tf.errors.OutOfRangeError:
            break
        losses.append(result["loss"])
        rows += int(result["size"])
    target.assign(0.9 * target + 0.1 * one)
    rate.assign(rate * 0.7)
final([one.numpy(), two.numpy(), target.numpy()], losses, rows, rate.numpy())
"""
)

# Keras' own step, without its fit; arrays sliced by hand in a random order.
TRAIN_ON_BATCH = """
import keras
model = keras.Sequential([keras.layers.Dense(5), keras.layers.Dropout(0.2), keras.layers.Dense(1)])
model.compile("adam", "mse", metrics=["mae"])
losses = []
for epoch in range(3):
    order = np.random.permutation(60)
    for start in range(0, 60, 20):
        rows = order[start : start + 20]
        losses.append(model.train_on_batch(x[rows], y[rows], return_dict=True))
    losses.append(model.evaluate(x, y, verbose=0))
final(model.get_weights(), losses)
"""

# Random operations in a sequential map are drawn again; a Python generator runs again.
NOISY_DATA = (
    _NETWORK
    + """
def rows():
    for row in np.random.permutation(60):
        yield x[row], y[row]

kinds = (tf.TensorSpec([6], tf.float32), tf.TensorSpec([1], tf.float32))
data = tf.data.Dataset.from_generator(rows, output_signature=kinds)
data = data.map(lambda x, y: (x + tf.random.normal([6]), y)).shuffle(20).batch(20)
train = tf.function(step)
losses = [float(train(*batch)) for epoch in range(3) for batch in data]
final([one.numpy(), two.numpy()], losses)
"""
)

# It saves by a manager of checkpoints, from whose newest it would go on, and as Keras does; keeps
# the best.
SAVING = """
import keras
model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
optimizer, best = keras.optimizers.SGD(0.05, momentum=0.9), None
saved = tf.train.Checkpoint(model=model, optimizer=optimizer, epoch=tf.Variable(0))
manager = tf.train.CheckpointManager(saved, "own", max_to_keep=2)
saved.restore(manager.latest_checkpoint)

@tf.function
def train(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss

losses, paths = [], []
for epoch in range(int(saved.epoch.numpy()), 4):
    losses += [float(train(x[start : start + 30], y[start : start + 30])) for start in (0, 30)]
    saved.epoch.assign_add(1)
    paths.append(manager.save())
    if best is None or losses[-1] < best:
        best = losses[-1]
        model.save_weights("best.weights.h5")
last = model.get_weights()
model.load_weights("best.weights.h5")
final(last + model.get_weights(), losses, paths, sorted(os.listdir("own")))
"""

# Keras 2, under TF_USE_LEGACY_KERAS=1.
LEGACY = """
layers, callbacks = tf.keras.layers, tf.keras.callbacks
model = tf.keras.Sequential([
    layers.Dense(8, activation="relu", kernel_regularizer="l2"), layers.BatchNormalization(),
    layers.Dropout(0.3), layers.Dense(1),
])
model.compile(tf.keras.optimizers.Adam(0.05), "mse", metrics=["mae"])
history = model.fit(
    x, y, batch_size=16, epochs=3, validation_split=0.2, verbose=2, callbacks=[
        callbacks.EarlyStopping(patience=2, restore_best_weights=True),
        callbacks.ReduceLROnPlateau(patience=1),
        callbacks.ModelCheckpoint("best.h5", save_best_only=True, save_weights_only=True),
        callbacks.CSVLogger("log.csv"),
    ],
)
final(model.get_weights(), history.history, open("log.csv").read())
"""

# Random operations of every kind in the step, in a loop and in a branch.
RANDOM_STEP = (
    _NETWORK
    + """
@tf.function
def train(x, y):
    x = x + tf.random.normal(tf.shape(x), stddev=0.1) + tf.random.truncated_normal([6], stddev=0.1)
    x = tf.nn.dropout(x, 0.2)
    if tf.random.uniform([]) < 0.5:
        y = y + tf.cast(tf.random.uniform([], 0, 3, tf.int32), tf.float32)
    for _ in tf.range(2):
        y = y + tf.random.uniform([1], -0.1, 0.1, seed=5)
    return step(x, y)

rows = [slice(start, start + 17) for start in (0, 17, 34, 51)] * 2
losses = [float(train(x[some], y[some])) for some in rows]
final([one.numpy(), two.numpy()], losses)
"""
)

# What cannot be brought back, or not exactly.
PARALLEL_AUGMENTATION = (
    _NETWORK
    + """
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(10)
data = data.map(lambda x, y: (x + tf.random.normal(tf.shape(x)), y), num_parallel_calls=4)
train = tf.function(step)
losses = [float(train(*batch)) for epoch in range(2) for batch in data]
final([one.numpy(), two.numpy()], losses)
"""
)

FREE_ORDER = PARALLEL_AUGMENTATION.replace("x + tf.random.normal(tf.shape(x))", "2.0 * x").replace(
    "num_parallel_calls=4", "num_parallel_calls=4, deterministic=False"
)

EAGER = (
    _NETWORK
    + """
losses = [float(step(x, y)) for epoch in range(6)]
final([one.numpy(), two.numpy()], losses)
"""
)

PYTHON_IN_STEP = (
    _NETWORK
    + """
@tf.function
def train(x, y):
    x = tf.numpy_function(lambda x: x * np.random.rand(), [x], tf.float32)
    return step(tf.ensure_shape(x, [60, 6]), y)

losses = [float(train(x, y)) for epoch in range(6)]
final([one.numpy(), two.numpy()], losses)
"""
)

DATASET_IN_STEP = (
    _NETWORK
    + """
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(60).batch(20)

@tf.function
def train():
    loss = 0.0
    for images, labels in data:
        loss = step(images, labels)
    return loss

losses = [float(train()) for epoch in range(6)]
final([one.numpy(), two.numpy()], losses)
"""
)

FIT_AND_LOOP = """
import keras
model = keras.Sequential([keras.layers.Dense(5), keras.layers.Dense(1)])
model.compile("adam", "mse")
{first}
{second}
final(model.get_weights(), model.evaluate(x, y, verbose=0))
"""
_FIT = "model.fit(x, y, batch_size=20, epochs=2, verbose=0)"
_LOOP = "for _ in range(6): model.train_on_batch(x, y)"
FIT_THEN_LOOP = FIT_AND_LOOP.format(first=_FIT, second=_LOOP)
LOOP_THEN_FIT = FIT_AND_LOOP.format(first=_LOOP, second=_FIT)


def program(body: str, seeded: bool) -> str:
    """The whole script."""
    return _HEAD.format(seed=_SEEDED if seeded else "") + body
