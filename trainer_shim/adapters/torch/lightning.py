"""PyTorch Lightning: boundaries, logs and checkpoints of `fit`, with the script unchanged.

An iteration ends after everything that follows a batch in which an optimizer stepped: logging,
validating, saving. When the program is run again, `fit` begins its first epoch. Before the first
batch, that becomes the checkpoint's epoch: its loops count as they did, and the loader is moved to
its batch.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import os
import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Callable

from trainer_shim.adapters.torch import private, trainer_attributes
from trainer_shim.adapters.torch.framework_run import (
    LARGEST,
    LONGEST,
    FrameworkRun,
    logged,
    running,
    why_not,
)
from trainer_shim.adapters.torch.loadable import Weights
from trainer_shim.adapters.torch.pack import PLAIN, Packer, Unpacker
from trainer_shim.adapters.torch.state import Files, State
from trainer_shim.saver import OtherProgram

if TYPE_CHECKING:
    from trainer_shim.adapters.torch.loop import TorchSession


# The files of Lightning's checkpoint callbacks and CSV logger, of a run that goes back in
# time.
#
# What was written after the checkpoint is written again, so it is neither kept beside nor
# added to: a log gets the rows of then, and a saved model of a later time counts as not there.

_LOG_BYTES = 4 << 20


def copy_files(callbacks: Sequence[Any], loggers: Sequence[Any]) -> State:
    """The names that each callback finds, and the text of each log."""
    return {
        "saved": [_names(callback) for callback in callbacks],
        "logs": [_text(_log(logger)) for logger in loggers],
    }


def put_back_files(callbacks: Sequence[Any], loggers: Sequence[Any], past: State) -> None:
    """Have callbacks and loggers, whose attributes are put back, go on from then."""
    for callback, names in zip(callbacks, past["saved"]):
        now = _names(callback)
        if names is not None and now is not None and set(now) - set(names):
            _do_not_find(callback, set(now) - set(names))
    for logger, text in zip(loggers, past["logs"]):
        path = _log(logger)
        if text is None or path is None or _text(path) in (None, text):
            continue
        if not text:
            os.remove(path)
            continue
        with open(path, "w", newline="") as file:
            file.write(text)


def _names(callback: Any) -> list[str] | None:
    """The files in the folder of a callback that saves; None for another, or one without."""
    if not hasattr(callback, "file_exists"):
        return None
    with contextlib.suppress(OSError, TypeError):
        return sorted(os.listdir(callback.dirpath))
    return []


def _do_not_find(callback: Any, later: set[str]) -> None:
    original = callback.file_exists
    folder = os.path.abspath(callback.dirpath)

    def file_exists(filepath: Any, trainer: Any) -> bool:
        parent, name = os.path.split(os.path.abspath(filepath))
        if parent == folder and name in later:
            later.discard(name)  # now it is written again
            return False
        return bool(original(filepath, trainer))

    callback.file_exists = file_exists


def _log(logger: Any) -> str | None:
    path: str | None = getattr(getattr(logger, "_experiment", None), "metrics_file_path", None)
    return path


def _text(path: str | None) -> str | None:
    """None for a file that cannot be read, or is too long to be kept."""
    if path is None:
        return None
    try:
        if os.path.getsize(path) > _LOG_BYTES:
            return None
        with open(path, newline="") as file:
            return file.read()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        return None


# What `self.log` of Lightning has gathered in the epoch under way.
#
# It is made as Lightning makes it at the first `log` of each name, and then given the
# values of then; a metric that is a module of the model's stands for itself.


def copy_results(results: Any, packer: Packer) -> list[State]:
    """Each name's settings and values."""
    import torch

    not_kept = {*vars(torch.nn.Module()), "meta"}
    copies = []
    for key, metric in results.items():
        meta, sync = metric.meta, metric.meta.sync
        name = meta.reduce_fx.__name__
        left_out = not_kept if metric.is_tensor else {*not_kept, "value"}
        copies.append(
            {
                "key": key,
                "is_tensor": metric.is_tensor,
                "meta": {field: getattr(meta, field) for field in private.METADATA},
                "reduce_fx": [name, meta.reduce_fx is getattr(builtins, name, None)],
                "sync": {"_should": sync.should, "rank_zero_only": sync.rank_zero_only},
                "values": trainer_attributes.attributes(metric, packer, left_out),
            }
        )
    return copies


def put_back_results(
    results: Any, copies: list[State], unpacker: Unpacker, package: str, trainer: Any
) -> None:
    """Set what `copy` copied. Raises OtherProgram."""
    import torch

    module = f"{package}.{private.CONNECTOR}.result"
    metadata, sync_class, metric_class = (
        private.find(module, name) for name in ("_Metadata", "_Sync", "_ResultMetric")
    )
    modules: dict[str, Any] = dict(trainer.lightning_module.named_modules())
    results.clear()
    for copy in copies:
        name, is_pythons = copy["reduce_fx"]
        meta = metadata(reduce_fx=getattr(builtins if is_pythons else torch, name), **copy["meta"])
        meta.sync = sync_class(fn=trainer.strategy.reduce, **copy["sync"])
        metric = metric_class(meta, copy["is_tensor"])
        if copy["is_tensor"]:
            metric.to(trainer.strategy.root_device)
        elif meta.metric_attribute in modules:
            metric.value = modules[meta.metric_attribute]
        else:
            raise OtherProgram(f"the model has no metric {meta.metric_attribute}")
        unpacker.put_some(copy["values"], vars(metric))
        results[copy["key"]] = metric


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
            "loop": trainer_attributes.attributes(self.loop, packer),
            "connector": trainer_attributes.attributes(trainer._logger_connector, packer),
            "callbacks": trainer_attributes.copy_each(trainer.callbacks, packer, self._lines),
            "loggers": trainer_attributes.copy_each(trainer.loggers, packer),
            "files": copy_files(trainer.callbacks, trainer.loggers),
            "results": copy_results(self.loop.epoch_loop._results, packer),
        }

    def put_back(self, past: State, unpacker: Unpacker) -> None:
        """Set it. Raises OtherProgram."""
        trainer = self.trainer
        trainer_attributes.put_back_each(
            trainer.callbacks, past["callbacks"], unpacker, "callbacks", self._lines
        )
        trainer_attributes.put_back_each(trainer.loggers, past["loggers"], unpacker, "loggers")
        unpacker.put_some(past["trainer"], vars(trainer))
        unpacker.put_some(past["loop"], vars(self.loop))
        unpacker.put_some(past["connector"], vars(trainer._logger_connector))
        self._forget_addresses()
        gathered = self.loop.epoch_loop._results
        put_back_results(gathered, past["results"], unpacker, self._package, trainer)

    def files(self, weights: Weights) -> Files:
        """`model.ckpt`: the weights and the hyper-parameters, for `load_from_checkpoint`.

        Made here and not by the trainer, which runs what the program does when it saves.
        """
        import torch

        model = self.trainer.lightning_module
        written = io.BytesIO()
        checkpoint = {
            "epoch": self.trainer.current_epoch,
            "global_step": self.trainer.global_step,
            "pytorch-lightning_version": sys.modules[self._package].__version__,
            "state_dict": weights(model),
            model.CHECKPOINT_HYPER_PARAMS_KEY: dict(model.hparams),
        }
        if checkpoint["state_dict"] is not None:
            torch.save(checkpoint, written)
            yield "model.ckpt", written.getbuffer()

    def _lines(self, callback: Any) -> Collection[str]:
        """The attributes in which a progress bar keeps the numbers of its lines: each process
        draws lines of its own, and `rich` raises KeyError for the number of another's."""
        bar = private.find(f"{self._package}.callbacks.progress.progress_bar", "ProgressBar")
        if not isinstance(callback, bar):
            return ()
        return {name for name in vars(callback) if name.endswith("_id")}

    def _forget_addresses(self) -> None:
        """Have the model look its metrics up anew, which it knows by their addresses."""
        for module in self.trainer.lightning_module.modules():
            if "_metric_attributes" in vars(module):
                module._metric_attributes = None

    def keep_versions(self, past: State) -> None:
        """Have the loggers write where they wrote before the checkpoint, not beside it."""
        trainer_attributes.check_each(self.trainer.loggers, past["loggers"], "loggers")
        for logger, copy in zip(self.trainer.loggers, past["loggers"]):
            if "_version" in copy["values"]:
                logger._version = copy["values"]["_version"]

    def put_back_files(self, past: State) -> None:
        """Have its files be those of then, once none is set aside any more."""
        put_back_files(self.trainer.callbacks, self.trainer.loggers, past["files"])

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


def install(session: TorchSession, package: str) -> None:
    """Hook `package`, lightning.pytorch or pytorch_lightning, which has just been imported."""
    _hook_fit(session, package)
    _hook_loops(session, package)
    _hook_logs(session, package)


def _of(session: TorchSession, epoch_loop: Any) -> tuple[FrameworkRun, Lightning] | None:
    run = session.run
    if (
        not isinstance(run, FrameworkRun)
        or not isinstance(run.driver, Lightning)
        or not run.driver.is_of(epoch_loop)
    ):
        return None
    return run, run.driver


def _hook_fit(session: TorchSession, package: str) -> None:
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


def _hook_loops(session: TorchSession, package: str) -> None:
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
            isinstance(run, FrameworkRun)
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


def _hook_logs(session: TorchSession, package: str) -> None:
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
