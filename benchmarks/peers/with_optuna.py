"""The study under Optuna: two processes share its storage, a pruner ends what it gives up.

`python -m benchmarks.peers.with_optuna DIARY EPOCHS halving|hyperband [STORAGE]`.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
import tempfile
from pathlib import Path

import optuna

from benchmarks.peers.training import Diary, points, train

WORKERS = 2


def pruner_of(name: str, epochs: int) -> optuna.pruners.BasePruner:
    """By Optuna's defaults, but for the length of a trial, which it cannot know."""
    if name == "halving":
        return optuna.pruners.SuccessiveHalvingPruner()
    return optuna.pruners.HyperbandPruner(min_resource=1, max_resource=epochs)


def study_of(storage: Path, name: str, epochs: int) -> optuna.Study:
    """The study in the storage, which is made if it is not there."""
    backend = optuna.storages.journal.JournalFileBackend(str(storage))
    return optuna.create_study(
        storage=optuna.storages.JournalStorage(backend),
        study_name="digits",
        pruner=pruner_of(name, epochs),
        load_if_exists=True,
    )


def work(diary: Diary, study: optuna.Study, epochs: int, lock: Path) -> None:
    """Train trials until none waits."""
    axes = {name: sorted({point[name] for point in points()}, key=str) for name in points()[0]}
    waiting = (optuna.trial.TrialState.WAITING,)
    while True:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not study.get_trials(deepcopy=False, states=waiting):
                return
            trial = study.ask()
            point = {name: trial.suggest_categorical(name, each) for name, each in axes.items()}

        def told(epoch: int, loss: float, trial: optuna.Trial = trial) -> None:
            diary.note(trial.number, epoch, loss)
            trial.report(loss, epoch)
            if epoch < epochs and trial.should_prune():
                raise optuna.TrialPruned
            trial.set_user_attr("loss", loss)

        try:
            train(point, epochs, told)
        except optuna.TrialPruned:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            study.tell(trial, trial.user_attrs["loss"])


def main() -> None:
    diary, epochs, name = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if len(sys.argv) > 4:
        storage = Path(sys.argv[4])
        work(Diary(diary), study_of(storage, name, epochs), epochs, storage)
        return
    with tempfile.NamedTemporaryFile() as storage_file:
        study = study_of(Path(storage_file.name), name, epochs)
        for point in points():
            study.enqueue_trial(point)
        words = [sys.executable, "-m", "benchmarks.peers.with_optuna", *sys.argv[1:4]]
        workers = [subprocess.Popen([*words, storage_file.name]) for _ in range(WORKERS)]
        assert [worker.wait() for worker in workers] == [0] * WORKERS


if __name__ == "__main__":
    main()
