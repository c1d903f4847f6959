"""What callbacks keep survives a suspension, or the trial is known to park only."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainer_shim import keras_programs as programs
from tests.trainer_shim.driving import Zygote
from tests.trainer_shim.suspending import Runs, fidelity

pytestmark = [pytest.mark.tensorflow, pytest.mark.in_depth, pytest.mark.timeout(300)]


_MODEL = """
model = keras.Sequential([layers.Input((6,)), layers.Dense(4), layers.Dense(1)])
model.compile("adam", "mse")
"""
_FIT = """
model.fit(x, y, batch_size=10, epochs=4, verbose=0, callbacks=[{callbacks}])
"""

# Averages of the weights as tensors, made anew at each step, and as variables.
_AVERAGES = """
class Tensors(callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.shadow = [tf.identity(w) for w in self.model.trainable_variables]
    def on_train_batch_end(self, batch, logs=None):
        pairs = zip(self.shadow, self.model.trainable_variables)
        self.shadow = [0.9 * shadow + 0.1 * w for shadow, w in pairs]

class Variables(callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.shadow = {w.path: tf.Variable(w.value) for w in self.model.trainable_variables}
        self.mean = keras.metrics.Mean()
    def on_train_batch_end(self, batch, logs=None):
        self.mean.update_state(logs["loss"])
        for w in self.model.trainable_variables:
            self.shadow[w.path].assign(0.9 * self.shadow[w.path] + 0.1 * w)
    def on_train_end(self, logs=None):
        for w in self.model.trainable_variables:
            w.assign(self.shadow[w.path])

tensors, variables = Tensors(), Variables()
""" + _MODEL + _FIT.format(callbacks="tensors, variables") + """
final(model, [float(tf.reduce_sum(one)) for one in tensors.shadow], variables.mean.result())
"""  # fmt: skip

# The script looks at its own list, dict, set and array after two fits.
_SHARED = """
class Note(callbacks.Callback):
    def __init__(self, *shared):
        super().__init__()
        self.losses, self.counts, self.seen, self.grid = shared
        self.swap = self.other = []
    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))
        self.counts[batch] = self.counts.get(batch, 0) + 1
        self.seen.add(int(1e6 * logs["loss"]))
        self.grid[batch] += 1
        self.swap = [*self.swap, batch]

losses, counts, seen, grid = [], {}, set(), np.zeros(10)
""" + _MODEL + """
note = Note(losses, counts, seen, grid)
""" + 2 * _FIT.format(callbacks="note") + """
final(model, losses, sorted(counts.items()), sorted(seen), list(grid), note.swap, note.other)
"""  # fmt: skip

# The script draws from the generators that its callback draws from, and looks at its object. Those
# of TensorFlow and Keras are in a list.
_DRAWN = """
import random

class Count:
    def __init__(self):
        self.steps, self.rng = 0, random.Random(7)

class Jitter(callbacks.Callback):
    def __init__(self, *shared):
        super().__init__()
        self.rng, self.old, self.plain, self.count, self.graphs = shared
    def on_train_batch_begin(self, batch, logs=None):
        self.count.steps += 1
        share = self.rng.random() + self.old.rand() + self.plain.random() + self.count.rng.random()
        share += float(self.graphs[0].uniform(()))
        share += float(keras.random.uniform((), seed=self.graphs[1]))
        self.model.optimizer.learning_rate = 0.01 * share

drawn = np.random.Generator(np.random.PCG64(3)), np.random.RandomState(3)
graphs = [tf.random.Generator.from_seed(3), keras.random.SeedGenerator(3)]
shared = (*drawn, random.Random(3), Count(), graphs)
own = shared[3].rng
""" + _MODEL + """
jitter = Jitter(*shared)
""" + _FIT.format(callbacks="jitter") + """
order = shared[0].permutation(100)
x, y = x[order], y[order]
""" + _FIT.format(callbacks="jitter") + """
graphs[0] = float(graphs[0].uniform(()))
final(model, shared[3].steps, shared[1].rand(), shared[2].random(), own.random(), graphs[0])
"""  # fmt: skip

# Schedules that keep their rates outside: in globals, in the function around them, in attributes.
_SCHEDULES = """
rate, calls = 0.1, []
def schedule(epoch, old):
    global rate
    calls.append(epoch)
    schedule.seen = getattr(schedule, "seen", 0) + 1
    if epoch and epoch % 2 == 0:
        rate *= 0.5
    return rate

def decaying(factor):
    kept, last = {"rate": 0.01}, 0.0
    def decay(epoch, old):
        nonlocal last
        kept["rate"] *= factor
        last += kept["rate"]
        return last
    return decay
""" + _MODEL + _FIT.format(callbacks="callbacks.LearningRateScheduler(schedule)") + """
""" + _FIT.format(callbacks="callbacks.LearningRateScheduler(decaying(0.7))") + """
final(model, rate, calls, schedule.seen)
"""  # fmt: skip

_UNSEEN = """
rates = (0.1 / (1 + n) for n in range(1000))
""" + _MODEL + _FIT.format(
    callbacks="callbacks.LearningRateScheduler(lambda epoch, old: next(rates))"
) + "final(model)"  # fmt: skip

# A generator that has been read, and a file that has been written to.
_READ = """
class Reader(callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.rates = (0.1 / (1 + n) for n in range(1000))
        self.schedule = lambda: next(self.rates)
    def on_train_batch_end(self, batch, logs=None):
        self.last = self.schedule()
""" + _MODEL + _FIT.format(callbacks="Reader()") + "final(model)"  # fmt: skip

_WRITTEN = """
class Writer(callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.file = open("notes", "w")
    def on_train_batch_end(self, batch, logs=None):
        self.file.write("done" * 1000)
""" + _MODEL + _FIT.format(callbacks="Writer()") + "final(model)"  # fmt: skip

# A generator in an object of a class that cannot be found by its name.
_LOCAL = """
def noise():
    class Noise:
        def __init__(self):
            self.rng = np.random.Generator(np.random.PCG64(3))
    return Noise()

class Draws(callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.noise = noise()
    def on_train_batch_end(self, batch, logs=None):
        self.last = self.noise.rng.random()
""" + _MODEL + _FIT.format(callbacks="Draws()") + "final(model)"  # fmt: skip

# What the methods of a callback keep outside of its attributes, and what they only look at.
_ELSEWHERE = """
notes, steps, limit = [], 0, 3
def note(value):
    notes.append(min(value, limit))

class Elsewhere(callbacks.Callback):
    count, other, seen = 0, 0, {}
    def on_train_batch_end(self, batch, logs=None):
        global steps
        steps += 1
        type(self).count += 1
        self.model.optimizer.learning_rate = 0.1 / self.count
        note(float(logs["loss"]))
    def on_epoch_end(self, epoch, logs=None):
        self.other, self.last = epoch, model.count_params()
""" + _MODEL + _FIT.format(callbacks="Elsewhere()") + "final(model)"  # fmt: skip

_LAMBDA = _MODEL + _FIT.format(
    callbacks="callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: None)"
) + "final(model)"  # fmt: skip

# Nothing of this changes.
_CONSTANT = """
class Constant(callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.file, self.names = open(__file__), [open(__file__), lambda: 0]
        self.scale = lambda value: 2 * value
        self.count = 0
    def on_train_batch_end(self, batch, logs=None):
        self.count += self.scale(batch)

constant = Constant()
""" + _MODEL + _FIT.format(callbacks="constant") + "final(model, constant.count)"  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [_AVERAGES, _SHARED, _DRAWN, _SCHEDULES, _CONSTANT],
    ids=["averages", "shared", "drawn", "schedules", "constant"],
)
def test_what_callbacks_keep_is_there_again(zygote: Zygote, tmp_path: Path, body: str) -> None:
    runs = Runs(zygote, tmp_path, programs.program(body, seeded=True))
    steps = (5, 25, 55) if body in (_SHARED, _DRAWN, _SCHEDULES) else (5, 25)
    assert runs.suspended(*steps) == runs.undisturbed()


@pytest.mark.parametrize(
    ("body", "level", "word"),
    [
        (_SCHEDULES, "exact", "arrays"),
        (_UNSEEN, "exact-if-deterministic", "rates cannot be copied"),
        (_CONSTANT, "exact-if-deterministic", "Constant is no callback of Keras' own"),
        (_ELSEWHERE, "exact-if-deterministic", "in Elsewhere.count, Elsewhere.seen, notes, steps)"),
        (_LAMBDA, "exact-if-deterministic", "LambdaCallback calls functions of the program's own"),
    ],
    ids=["copied", "unseen", "own", "elsewhere", "lambda"],
)
def test_what_functions_keep_is_copied_or_doubted(
    zygote: Zygote, tmp_path: Path, body: str, level: str, word: str
) -> None:
    runs = Runs(zygote, tmp_path, programs.program(body, seeded=True))
    with runs.trial("said") as trial:
        trial.start(limit=13)
        trial.until("parked")
        assert fidelity(trial)[0] == level
        assert word in fidelity(trial)[1]
        trial.resume()
        trial.until("completed")


@pytest.mark.parametrize(
    ("body", "named"),
    [(_READ, "Reader.rates"), (_WRITTEN, "Writer.file"), (_LOCAL, "Draws.noise")],
    ids=["read", "written", "local"],
)
def test_what_cannot_be_copied_only_parks(
    zygote: Zygote, tmp_path: Path, body: str, named: str
) -> None:
    """The callback and the attribute are named before a device is asked for."""
    runs = Runs(zygote, tmp_path, programs.program(body, seeded=True))
    with runs.trial("kept") as trial:
        trial.start(limit=3)
        trial.until("parked")
        level, reason = fidelity(trial)
        assert level == "park-only"
        assert named in reason
        trial.resume()
        trial.until("completed")


# The program ends itself midway in its second epoch.
_LEAVES = """
class Leaves(callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if self.model.optimizer.iterations.numpy() == 13:
            {how}
""" + _MODEL + _FIT.replace("{callbacks}", "Leaves()")  # fmt: skip


@pytest.mark.parametrize(
    ("how", "kind", "code"),
    [
        ("raise SystemExit(0)", "completed", 0),
        ("raise SystemExit(3)", "failed", 3),
        ("os._exit(4)", "failed", 4),
    ],
    ids=["well", "badly", "at once"],
)
@pytest.mark.parametrize("from_step", [0, 12])
def test_a_callback_may_end_the_program(
    zygote: Zygote, tmp_path: Path, how: str, kind: str, code: int, from_step: int
) -> None:
    """As it would without Hermes, suspended a step before that or not."""
    body = _LEAVES.format(how=how)
    runs = Runs(zygote, tmp_path, programs.program(body, seeded=True))
    with runs.trial("leaves") as trial:
        trial.start(limit=from_step or None)
        if from_step:
            assert trial.until("parked")["step"] == from_step
            trial.resume()
        ended = trial.until("completed", "failed")
        assert (ended["kind"], ended["exit_code"]) == (kind, code)
        told = list(trial.losses())
        # The last step's boundary is not reached, and who leaves at once tells of no step since the
        # last report.
        whole = list(range(1, 13))
        assert told == whole or (how.startswith("os") and told == whole[: len(told)])
