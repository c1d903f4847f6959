"""The study under Ray Tune's ASHA, on two cores.

`python -m benchmarks.peers.with_ray DIARY MODEL ORDER EPOCHS`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler

from benchmarks.peers.training import Diary, points, train

CORES = 2


def main() -> None:
    diary, model, epochs = Path(sys.argv[1]).absolute(), sys.argv[2], int(sys.argv[4])
    trials = points(model, int(sys.argv[3]))

    def trainable(config: dict[str, Any]) -> None:
        notes, number = Diary(diary), config["number"]

        def told(epoch: int, loss: float) -> None:
            notes.note(number, epoch, loss)
            tune.report({"val_loss": loss})

        train(model, trials[number], epochs, told)

    variables = {"PYTHONPATH": os.environ["PYTHONPATH"], "TF_CPP_MIN_LOG_LEVEL": "3"}
    ray.init(
        num_cpus=CORES, include_dashboard=False, logging_level="ERROR",
        runtime_env={"env_vars": variables},
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as storage:
        tuner = tune.Tuner(
            tune.with_resources(trainable, {"cpu": 1}),
            param_space={"number": tune.grid_search(list(range(len(trials))))},
            tune_config=tune.TuneConfig(
                metric="val_loss", mode="min", scheduler=ASHAScheduler(max_t=epochs)
            ),
            run_config=tune.RunConfig(storage_path=storage, verbose=0),
        )
        results = tuner.fit()
    assert not results.errors, results.errors


if __name__ == "__main__":
    main()
