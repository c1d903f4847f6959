"""A fit over a tf.data pipeline goes on with the elements that come next, however it shuffles.

Every comparison is bit for bit: each step's loss, the final weights and everything printed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainer_shim import keras_programs as programs
from tests.trainer_shim.driving import Zygote
from tests.trainer_shim.suspending import Runs, fidelity, outcome

pytestmark = [pytest.mark.tensorflow, pytest.mark.in_depth, pytest.mark.timeout(300)]

_FIT = """
rows = tf.data.Dataset.from_tensor_slices((x, y))
def shard(index):
    return rows.skip(25 * index).take(25)
shards = tf.data.Dataset.range(4).shuffle(4)
val = None
{pipeline}
model = keras.Sequential([layers.Input((6,)), layers.Dense(5), layers.Dense(1)])
model.compile("adam", "mse")
history = model.fit(train, validation_data=val, verbose=0, {arguments})
final(model, history.history)
"""
_GOES_ON = "epochs=4, steps_per_epoch=7"  # over one iterator: its passes are no epochs
_ANEW = "epochs=3"  # each epoch begins an iterator


def runs_of(zygote: Zygote, folder: Path, pipeline: str, arguments: str) -> Runs:
    """Runs of a fit over this pipeline."""
    body = _FIT.format(pipeline=pipeline, arguments=arguments)
    return Runs(zygote, folder, programs.program(body, seeded=False))


@pytest.mark.parametrize(
    ("pipeline", "arguments", "steps"),
    [
        pytest.param(
            "train = rows.shuffle(100).shuffle(30).batch(8).repeat()",
            _GOES_ON,
            (5, 11, 14, 26),
            id="two-shuffles",
        ),
        pytest.param(
            "train = rows.shuffle(100).shuffle(30).batch(8).prefetch(2)",
            _ANEW,
            (11, 13, 20, 26, 38),
            id="two-shuffles-anew",
        ),
        pytest.param(
            "train = shards.flat_map(shard).shuffle(30).batch(8).repeat()",
            _GOES_ON,
            (1, 8, 11, 15, 20),
            id="shards",
        ),
        pytest.param(
            "train = shards.interleave(shard, cycle_length=2, num_parallel_calls=2).shuffle(30)\n"
            "train = train.batch(8).prefetch(2)",
            _ANEW,
            (12, 13, 25),
            id="interleaved-shards-anew",
        ),
        pytest.param(
            "train = rows.shuffle(50, reshuffle_each_iteration=False)\n"
            "train = train.shuffle(20, reshuffle_each_iteration=False).batch(8).repeat()",
            _GOES_ON,
            (12, 25),
            id="always-alike",
        ),
        pytest.param(
            "mixed = rows.shuffle(100)\n"
            "train, val = mixed.skip(20).shuffle(30).batch(8), mixed.take(20).batch(10)",
            _ANEW,
            (9, 10, 24),
            id="split-after-the-shuffle",
        ),
        pytest.param(
            "train = rows.shuffle(60).repeat(2).batch(10).prefetch(1)\n"
            "val = rows.shuffle(9).batch(40)",
            "epochs=2",
            (19, 20, 39),
            id="one-shuffle-repeated",
        ),
    ],
)
def test_a_pipeline_goes_on_where_it_was(
    zygote: Zygote, tmp_path: Path, pipeline: str, arguments: str, steps: tuple[int, ...]
) -> None:
    runs = runs_of(zygote, tmp_path, pipeline, arguments)
    undisturbed = runs.undisturbed()
    assert steps[-1] <= max(undisturbed[0])
    assert runs.suspended(*steps) == undisturbed


@pytest.mark.parametrize(
    ("pipeline", "arguments", "word"),
    [
        pytest.param(
            "mixed = rows.shuffle(100)\n"
            "train, val = mixed.skip(20).batch(8).repeat(), mixed.take(20).batch(10)",
            _GOES_ON,
            "from one shuffle",
            id="split-after-the-shuffle",
        ),
        pytest.param(
            "train = rows.shuffle(100).shuffle(30).repeat(2).batch(8)",
            _ANEW,
            "how often the tf.data pipeline was shuffled",
            id="repeated-anew",
        ),
        pytest.param(
            "train = rows.shuffle(100).cache().batch(8)",
            _ANEW,
            "how often the tf.data pipeline was shuffled",
            id="cached",
        ),
        pytest.param(
            "train = shards.interleave(lambda i: shard(i).shuffle(9)).batch(8).prefetch(2)",
            _ANEW,
            "cannot be saved",
            id="shuffled-in-a-function",
        ),
        pytest.param(
            "train, val = rows.batch(8), rows.shuffle(40).repeat().batch(10)",
            _ANEW + ", validation_steps=3",
            "how often the validation data were shuffled",
            id="validation-repeated",
        ),
        pytest.param(
            "train = rows.shuffle(100).batch(8)\n"
            "look = callbacks.LambdaCallback(on_epoch_begin=lambda *_: next(iter(train)))",
            _ANEW + ", callbacks=[look]",
            "reads a shuffled tf.data pipeline itself",
            id="read-by-a-callback",
        ),
    ],
)
def test_what_may_be_shuffled_otherwise_only_parks(
    zygote: Zygote, tmp_path: Path, pipeline: str, arguments: str, word: str
) -> None:
    """It is known by the first step, and a suspend keeps the process."""
    runs = runs_of(zygote, tmp_path, pipeline, arguments)
    with runs.trial("only") as trial:
        trial.start(limit=1)
        trial.until("parked")
        level, reason = fidelity(trial)
        assert level == "park-only"
        assert word in reason
        trial.resume()
        trial.until("completed")
        assert outcome(trial)


def test_a_second_fit_over_what_may_be_shuffled_otherwise_only_parks(
    zygote: Zygote, tmp_path: Path
) -> None:
    """How far the first one has read ahead when it ended decides the order of the second."""
    pipeline = """
train = rows.shuffle(60).batch(10).repeat()
first = keras.Sequential([layers.Input((6,)), layers.Dense(1)])
first.compile("adam", "mse")
first.fit(train, steps_per_epoch=5, verbose=0)
"""
    runs = runs_of(zygote, tmp_path, pipeline, _GOES_ON)
    with runs.trial("second") as trial:
        trial.start(limit=3)
        trial.until("parked")
        assert fidelity(trial)[0] == "exact-if-deterministic"
        trial.resume(limit=6)
        trial.until("parked")
        level, reason = fidelity(trial)
        assert (level, reason[:9]) == ("park-only", "how often")
