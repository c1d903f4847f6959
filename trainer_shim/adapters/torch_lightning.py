"""PyTorch Lightning: boundaries, logs and checkpoints of `fit`, script unchanged.

Rule: the boundary is after all that follows a batch in which an optimizer stepped: logging,
validating, saving. Run again, `fit` begins its first epoch; before the first batch it becomes
the checkpoint's epoch, its loops count as they did, and the loader is moved to its batch.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, Callable

from trainer_shim.adapters import torch_kept as kept
from trainer_shim.adapters import torch_lightning_files as files
from trainer_shim.adapters import torch_private as private
from trainer_shim.adapters import torch_results as results
from trainer_shim.adapters.torch_pack import PLAIN, Packer
from trainer_shim.adapters.torch_run import LARGEST, LONGEST, Run, logged, running, why_not
from trainer_shim.adapters.torch_state import State
from trainer_shim.adapters.torch_unpack import Unpacker

if TYPE_CHECKING:
    from trainer_shim.adapters.torch import Session

# Points in time, which mean nothing in another process.
_NOT_KEPT = ("_train_start_time", "_last_val_time")


class Lightning:
    """One call of a Trainer's `fit`; `package` is the name that Lightning was imported by."""

    name = "Lightning"

    def __init__(self, trainer: Any, package: str) -> None:
        self.untested = private.untested_of(package)
        self.trainer = trainer
        self.loop = trainer.fit_loop
        self._package = package

    def is_of(self, epoch_loop: Any) -> bool:
        """Whether this is the loop over the batches of an epoch."""
        return self.loop.epoch_loop is epoch_loop

    def is_read_by(self, fetcher: Any) -> bool:
        """Whether this takes the batches of the training data."""
        return self.loop._data_fetcher is fetcher

    def obstacle(self) -> str | None:
        """Why this call could not go on in another process."""
        trainer, fetcher = self.trainer, self.loop._data_fetcher
        if trainer.reload_dataloaders_every_n_epochs:
            return "reload_dataloaders_every_n_epochs: the loaders are made anew while it trains"
        if type(fetcher).__name__ != "_PrefetchDataFetcher":
            return "training_step takes an iterator: what it has read is not known"
        reasons = (why_not(loader) for loader in self.loop._combined_loader.flattened)
        return next((reason for reason in reasons if reason), None)

    def planned(self) -> int | None:
        """How many steps it will take, if each step takes the same number of batches."""
        loop, trainer = self.loop, self.trainer
        if not trainer.lightning_module.automatic_optimization:
            return None
        limits: list[int] = [loop.max_steps] if loop.max_steps != -1 else []
        if loop.max_epochs != -1 and loop.max_batches != float("inf"):
            limits.append(-(-loop.max_batches // trainer.accumulate_grad_batches) * loop.max_epochs)
        return min(limits, default=None)

    def trains_on(self, loader: Any) -> bool:
        """Whether `fit` reads training data, and this loader is theirs."""
        combined = self.loop._combined_loader
        is_one = combined is not None and any(loader is one for one in combined.flattened)
        return bool(is_one and self.trainer.training)

    def is_last(self) -> bool:
        """Whether it stops after this batch."""
        loop, batches = self.loop, self.loop.epoch_loop
        if self.trainer.should_stop or loop.max_steps == batches.global_step:
            return True
        is_last_epoch = loop.epoch_progress.current.processed + 1 == loop.max_epochs
        return bool(is_last_epoch and batches._num_ready_batches_reached())

    def consumed(self) -> int:
        """How many batches of the epoch have been trained on."""
        fetched: int = self.loop._data_fetcher.fetched
        return fetched

    def copy(self, known: dict[int, int]) -> State:
        """Its loops, its callbacks and loggers, and what was logged in this epoch."""
        trainer = self.trainer
        self._forget_addresses()
        packer = Packer(known, LARGEST, LONGEST, _walked(self._package))
        plain = {k: v for k, v in vars(trainer).items() if type(v) in PLAIN and k not in _NOT_KEPT}
        return {
            "epoch": self.loop.epoch_progress.current.processed,
            "trainer": plain,
            "loop": kept.attributes(self.loop, packer),
            "connector": kept.attributes(trainer._logger_connector, packer),
            "callbacks": kept.copy_each(trainer.callbacks, packer),
            "loggers": kept.copy_each(trainer.loggers, packer),
            "files": files.copy(trainer.callbacks, trainer.loggers),
            "results": results.copy(self.loop.epoch_loop._results, packer),
        }

    def put_back(self, past: State, unpacker: Unpacker) -> None:
        """Set it. Raises OtherProgram."""
        trainer = self.trainer
        kept.put_back_each(trainer.callbacks, past["callbacks"], unpacker, "callbacks")
        kept.put_back_each(trainer.loggers, past["loggers"], unpacker, "loggers")
        unpacker.put_some(past["trainer"], vars(trainer))
        unpacker.put_some(past["loop"], vars(self.loop))
        unpacker.put_some(past["connector"], vars(trainer._logger_connector))
        self._forget_addresses()
        gathered = self.loop.epoch_loop._results
        results.put_back(gathered, past["results"], unpacker, self._package, trainer)

    def _forget_addresses(self) -> None:
        """Have the model look its metrics up anew, which it knows by their addresses."""
        for module in self.trainer.lightning_module.modules():
            if "_metric_attributes" in vars(module):
                module._metric_attributes = None

    def keep_versions(self, past: State) -> None:
        """Have the loggers write where they wrote before the checkpoint, not beside it."""
        kept.check_each(self.trainer.loggers, past["loggers"], "loggers")
        for logger, copy in zip(self.trainer.loggers, past["loggers"]):
            if "_version" in copy["values"]:
                logger._version = copy["values"]["_version"]

    def put_back_files(self, past: State) -> None:
        """Have its files be those of then, once none is set aside any more."""
        files.put_back(self.trainer.callbacks, self.trainer.loggers, past["files"])

    def begin_epoch_again(self, past: State) -> Callable[[], Any]:
        """Read the data of the checkpoint's epoch from their start; what takes a batch of them."""
        fetcher = self.loop._data_fetcher
        set_epoch = private.find(f"{self._package}.loops.fit_loop", "_set_sampler_epoch")
        for loader in self.loop._combined_loader.flattened:
            set_epoch(loader, past["epoch"])
        iter(fetcher)
        return lambda: next(fetcher)


def _walked(package: str) -> tuple[type, ...]:
    """The classes of what counts."""
    names = (
        ("loops.loop", "_Loop"),
        ("loops.progress", "_BaseProgress"),
        ("loggers.csv_logs", "ExperimentWriter"),
    )
    return tuple(private.find(f"{package}.{module}", name) for module, name in names)


def install(session: Session, package: str) -> None:
    """Hook `package`, lightning.pytorch or pytorch_lightning, which has just been imported."""
    _hook_fit(session, package)
    _hook_loops(session, package)
    _hook_logs(session, package)


def _of(session: Session, epoch_loop: Any) -> tuple[Run, Lightning] | None:
    run = session.run
    if (
        not isinstance(run, Run)
        or not isinstance(run.driver, Lightning)
        or not run.driver.is_of(epoch_loop)
    ):
        return None
    return run, run.driver


def _hook_fit(session: Session, package: str) -> None:
    trainer_class = private.find(f"{package}.trainer.trainer", "Trainer")
    original = trainer_class.fit

    @functools.wraps(original)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        driver = Lightning(self, package)
        with running(session, driver) as run:
            if run is not None and run.past is not None:
                with session.restoring():
                    driver.keep_versions(run.past)
            return original(self, *args, **kwargs)

    trainer_class.fit = fit


def _hook_loops(session: Session, package: str) -> None:
    loop = private.find(f"{package}.loops.training_epoch_loop", "_TrainingEpochLoop")
    fetcher = private.find(f"{package}.loops.fetchers", "_DataFetcher")
    begin, follow, read = loop.on_run_start, loop.on_advance_end, fetcher.__iter__

    @functools.wraps(begin)
    def on_run_start(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        mine = _of(session, self)
        if mine is None:
            return
        run, driver = mine
        run.loop_begins()
        past = run.past
        if past is not None:
            with session.restoring():
                run.go_on(sys._getframe(1), lambda: driver.begin_epoch_again(past))
            driver.put_back_files(past)

    @functools.wraps(follow)
    def on_advance_end(self: Any, *args: Any, **kwargs: Any) -> None:
        follow(self, *args, **kwargs)
        mine = _of(session, self)
        if mine is not None:
            mine[0].boundary()

    @functools.wraps(read)
    def iterator(self: Any) -> Any:
        run = session.run
        if (
            isinstance(run, Run)
            and isinstance(run.driver, Lightning)
            and run.driver.is_read_by(self)
        ):
            run.begin_reading()
        return read(self)

    loop.on_run_start, loop.on_advance_end, fetcher.__iter__ = (
        on_run_start,
        on_advance_end,
        iterator,
    )


def _hook_logs(session: Session, package: str) -> None:
    connector = private.find(f"{package}.{private.CONNECTOR}.logger_connector", "_LoggerConnector")
    log, end = connector.log_metrics, connector.on_epoch_end

    @functools.wraps(log)
    def log_metrics(self: Any, metrics: Any, *args: Any, **kwargs: Any) -> None:
        logged(session, metrics)
        log(self, metrics, *args, **kwargs)

    @functools.wraps(end)
    def on_epoch_end(self: Any) -> None:
        end(self)
        if not self.trainer.sanity_checking:
            logged(session, self.metrics["callback"])

    connector.log_metrics, connector.on_epoch_end = log_metrics, on_epoch_end
