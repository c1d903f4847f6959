"""The study under Optuna: two processes share its storage, a pruner ends what it gives up.

`python -m benchmarks.peers.with_optuna DIARY MODEL ORDER EPOCHS halving|hyperband`.
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
        study_name="peers",
        pruner=pruner_of(name, epochs),
        load_if_exists=True,
    )


def work(
    diary: Diary, study: optuna.Study, model: str, order: int, epochs: int, lock: Path
) -> None:
    """Train trials until none waits."""
    trials = points(model, order)
    axes = {name: sorted({point[name] for point in trials}, key=str) for name in trials[0]}
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
            train(model, point, epochs, told)
        except optuna.TrialPruned:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            study.tell(trial, trial.user_attrs["loss"])


def main() -> None:
    diary, model, order, epochs, name, *shared = sys.argv[1:]
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if shared:
        storage = Path(shared[0])
        study = study_of(storage, name, int(epochs))
        work(Diary(Path(diary)), study, model, int(order), int(epochs), storage)
        return
    with tempfile.NamedTemporaryFile() as file:
        study = study_of(Path(file.name), name, int(epochs))
        for point in points(model, int(order)):
            study.enqueue_trial(point)
        words = [sys.executable, "-m", "benchmarks.peers.with_optuna", *sys.argv[1:], file.name]
        workers = [subprocess.Popen(words) for _ in range(WORKERS)]
        assert [worker.wait() for worker in workers] == [0] * WORKERS


if __name__ == "__main__":
    main()
