"""Training scripts for Keras on PyTorch and JAX, as users write them; none of them knows of Hermes.

Each prints one line that starts with FINAL, with everything that must come out the same.
Those of `keras_programs` that name nothing of TensorFlow are run on these backends too.
"""

from __future__ import annotations

from tests.trainer_shim import keras_programs

# In place of `set_random_seed`, which imports TensorFlow for its seed.
_SEED = """import random
random.seed(11)
np.random.seed(11)
if keras.backend.backend() == "torch":
    import torch
    torch.manual_seed(11)"""

# Data that draw noise as they are read, in an order drawn by a generator of their own.
LOADERS = """
import torch

class Noisy(torch.utils.data.Dataset):
    def __len__(self):
        return 100
    def __getitem__(self, row):
        return torch.from_numpy(x[row]) + 0.1 * torch.randn(6), torch.from_numpy(y[row])

own = torch.Generator().manual_seed(3)
data = torch.utils.data.DataLoader(Noisy(), batch_size=16, shuffle=True, generator=own)
check = torch.utils.data.DataLoader(Noisy(), batch_size=32, shuffle=True)
model = keras.Sequential([layers.Input((6,)), layers.Dense(5), layers.Dropout(0.2),
                          layers.Dense(1)])
model.compile("adam", "mse")
first = model.fit(data, epochs=2, verbose=0, validation_data=check)
second = model.fit(data, epochs=2, verbose=0)
final(model, first.history, second.history)
"""

# A step of the program's own, through modules of PyTorch, one of which has buffers.
MODULES = """
import torch

class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.part = torch.nn.Sequential(
            torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), torch.nn.Dropout(0.3))
        self.out, self.tracker = layers.Dense(1), keras.metrics.Mean(name="loss")
    def call(self, x):
        return self.out(self.part(x))
    def train_step(self, data):
        x, y = data
        self.zero_grad()
        loss = torch.mean(torch.abs(self(x) - y))
        loss.backward()
        weights = list(self.trainable_weights)
        with torch.no_grad():
            self.optimizer.apply([weight.value.grad for weight in weights], weights)
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}

model = Own()
model.compile("adam")
history = model.fit(x, y, batch_size=20, epochs=3, verbose=0)
final(model, history.history, [float(one.double().sum()) for one in model.buffers()])
"""

# A step of the program's own, from a state to the next one.
OWN_STEP = """
import jax

class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense, self.tracker = layers.Dense(1), keras.metrics.Mean(name="loss")
    def call(self, x):
        return self.dense(x)
    def compute(self, trainable, others, x, y):
        predicted, others = self.stateless_call(trainable, others, x)
        return keras.ops.mean(keras.ops.abs(predicted - y)), others
    def train_step(self, state, data):
        trainable, others, slots, metrics = state
        differentiate = jax.value_and_grad(self.compute, has_aux=True)
        (loss, others), gradients = differentiate(trainable, others, *data)
        trainable, slots = self.optimizer.stateless_apply(slots, gradients, trainable)
        metrics = self.tracker.stateless_update_state(metrics, loss)
        logs = {"loss": self.tracker.stateless_result(metrics)}
        return logs, (trainable, others, slots, metrics)
    @property
    def metrics(self):
        return [self.tracker]

model = Own()
model.compile("adam")
model(x[:1])
history = model.fit(x, y, batch_size=20, epochs=3, verbose=0)
final(model, history.history)
"""

# Averages of the weights: tensors made anew at each step, and tensors that change, which the script
# looks at too.
AVERAGES = """
class Anew(callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.shadow = [w.value + 0.0 for w in self.model.trainable_variables]
    def on_train_batch_end(self, batch, logs=None):
        pairs = zip(self.shadow, self.model.trainable_variables)
        self.shadow = [0.9 * shadow + 0.1 * w.value for shadow, w in pairs]

anew = Anew()
model = keras.Sequential([layers.Input((6,)), layers.Dense(4), layers.Dense(1)])
model.compile("adam", "mse")
model.fit(x, y, batch_size=10, epochs=4, verbose=0, callbacks=[anew])
final(model, [float(one.sum()) for one in anew.shadow])
"""

CHANGED_TENSORS = """
import torch

class Changed(callbacks.Callback):
    def __init__(self, sums):
        super().__init__()
        self.sums = sums
    def on_train_batch_end(self, batch, logs=None):
        for total, w in zip(self.sums, self.model.trainable_variables):
            total.add_(w.value.detach().sum())

sums = [torch.zeros(()), torch.zeros(())]
model = keras.Sequential([layers.Input((6,)), layers.Dense(1)])
model.compile("adam", "mse")
model.fit(x, y, batch_size=10, epochs=4, verbose=0, callbacks=[Changed(sums)])
final(model, [float(one) for one in sums])
"""

# Generators of each kind: alone, in containers, in an object, made late, shared with the script.
DRAWN = """
import random
import torch

class Count:
    def __init__(self, own):
        self.own = own

class Noise(callbacks.Callback):
    def __init__(self, shared):
        super().__init__()
        self.torch, self.keras = shared, keras.random.SeedGenerator(3)
        self.parts = [np.random.default_rng(3), {"old": np.random.RandomState(3)}, shared]
        self.count, self.draw = Count(random.Random(3)), self.parts[0].normal
        self.values = []
    def on_train_begin(self, logs=None):
        self.begun = torch.Generator().manual_seed(5)
    def on_train_batch_end(self, batch, logs=None):
        if not hasattr(self, "late"):
            self.late = torch.Generator().manual_seed(4)
        new, old, same = self.parts
        drawn = [torch.rand(1, generator=one).item()
                 for one in (self.torch, same, self.late, self.begun)]
        drawn += [new.random(), self.draw(), old["old"].rand(), self.count.own.random()]
        drawn.append(float(keras.random.uniform((), seed=self.keras)))
        self.values.append(drawn)

shared = torch.Generator().manual_seed(3)
noise = Noise(shared)
model = keras.Sequential([layers.Input((6,)), layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, y, batch_size=20, epochs=2, verbose=0, callbacks=[noise])
order = torch.randperm(100, generator=shared).numpy()
model.fit(x[order], y[order], batch_size=20, epochs=2, verbose=0, callbacks=[noise])
final(model, noise.values, torch.rand(1, generator=shared).item())
"""

# Each batch draws its own order; the passes over the data are no epochs.
BY_BATCH = """
model = keras.Sequential([layers.Dense(5), layers.Dropout(0.2), layers.Dense(1)])
model.compile("adam", "mse")
history = model.fit(x, y, batch_size=9, epochs=3, steps_per_epoch=7, shuffle="batch", verbose=0)
final(model, history.history)
"""

# What cannot be brought back.
OPTIMIZER = """
import torch

class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.out = layers.Dense(1)
    def call(self, x):
        return self.out(x)
    def train_step(self, data):
        x, y = data
        stepping.zero_grad()
        loss = torch.mean((self(x) - y) ** 2)
        loss.backward()
        stepping.step()
        return {"loss": loss}

model = Own()
model.compile()
model(x[:1])
stepping = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
model.fit(x, y, batch_size=20, epochs=2, verbose=0)
final(model)
"""

COMPILED = """
model = keras.Sequential([layers.Input((6,)), layers.Dense(1)])
model.compile("sgd", "mse", jit_compile=True)
if keras.backend.backend() == "torch":
    import torch
    torch.compile = lambda function: function  # to compile takes long, and is not what is tested
model.fit(x, y, batch_size=20, epochs=2, verbose=0)
final(model)
"""

PIPELINE = """
import tensorflow as tf
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(20)
model = keras.Sequential([layers.Input((6,)), layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(data, epochs=2, verbose=0)
final(model)
"""


def program(body: str, seeded: bool) -> str:
    """The whole script."""
    whole = keras_programs.program(body, seeded).replace("import tensorflow as tf\n", "", 1)
    return whole.replace("keras.utils.set_random_seed(11)", _SEED)
