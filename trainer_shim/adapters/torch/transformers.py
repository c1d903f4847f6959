"""The Hugging Face Trainer: boundaries, logs and checkpoints of `train`, with the script unchanged.

An iteration ends after everything that follows a step of the optimizer: logging, evaluating,
saving. When the program is run again, `train` begins with the checkpoint's epoch, and that epoch
with the batch that came next; what it counts in variables of its own is set in them.
"""

from __future__ import annotations

import functools
import glob
import inspect
import os
import sys
import tempfile
import types
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from trainer_shim.adapters.torch import private, trainer_attributes
from trainer_shim.adapters.torch.frame_locals import keep_locals
from trainer_shim.adapters.torch.framework_run import (
    LARGEST,
    LONGEST,
    FrameworkRun,
    logged,
    running,
    why_not,
)
from trainer_shim.adapters.torch.loadable import Weights
from trainer_shim.adapters.torch.pack import Packer, Unpacker
from trainer_shim.adapters.torch.state import Files, State

if TYPE_CHECKING:
    from trainer_shim.adapters.torch.loop import TorchSession

# Given by the program, or copied with its models and loaders.
_NOT_KEPT = {"args", "train_dataset", "eval_dataset", "data_collator", "processing_class"}
# Of its state: computed from the arguments, which may ask for more than at the checkpoint.
_ASKED_FOR = ("max_steps", "num_train_epochs", "logging_steps", "eval_steps", "save_steps")
# The time of day is in them, or they are told already.
_NOT_METRICS = ("epoch", "total_flos", "_runtime", "_per_second", "_time", "_time_seconds")


class HuggingFace:
    """One call of a Trainer's `train`."""

    name = "the Hugging Face Trainer"

    def __init__(self, trainer: Any) -> None:
        self.untested = private.untested_of(private.HF_TRAINER)
        self.trainer = trainer
        self.frame: types.FrameType | None = None  # that of the epoch, at a boundary
        self._epoch = 0
        self._loader: Any = None

    def epoch_begins(self, epoch: int, loader: Any) -> None:
        """It reads this loader, or what that reads from."""
        self._epoch, self._loader = epoch, getattr(loader, "base_dataloader", loader)

    def obstacle(self) -> str | None:
        """Why this call could not go on in another process."""
        trainer, args = self.trainer, self.trainer.args
        if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled or args.n_gpu > 1:
            return "the model is spread over several devices"
        if args.auto_find_batch_size:
            return "auto_find_batch_size: how often it would begin anew is not known"
        return why_not(self._loader)

    def planned(self) -> int | None:
        """How many steps it will take."""
        steps: int = self.trainer.state.max_steps
        return steps

    def trains_on(self, loader: Any) -> bool:
        """Whether this is the loader of the epoch."""
        return loader is self._loader

    def is_last(self) -> bool:
        """Whether it stops after this step, as far as its callbacks have said."""
        return bool(self.trainer.control.should_training_stop)

    def consumed(self) -> int:
        """How many batches of the epoch have been trained on."""
        assert self.frame is not None
        step: int = self.frame.f_locals["step"]
        return step + 1

    def copy(self, known: dict[int, int]) -> State:
        """Its state, its callbacks, and the variables of its loop."""
        assert self.frame is not None
        packer = Packer(known, LARGEST, LONGEST, _state_classes())
        values = self.frame.f_locals
        stops = self.trainer.control.should_training_stop or self.trainer.control.should_epoch_stop
        return {
            "epoch": self._epoch,
            "updates": values["update_step"] + 1,
            "is_over": bool(stops or values["step"] + 1 >= values["steps_in_epoch"]),
            "local": packer.pack_some((k, values[k]) for k in ("grad_norm", "learning_rate")),
            "trainer": trainer_attributes.attributes(self.trainer, packer, _NOT_KEPT),
            "callbacks": trainer_attributes.copy_each(
                self.trainer.callback_handler.callbacks, packer, _drawn
            ),
        }

    def put_back(self, past: State, unpacker: Unpacker) -> None:
        """Set it. Raises OtherProgram."""
        trainer, frame = self.trainer, self.frame
        assert frame is not None
        asked = {name: getattr(trainer.state, name) for name in _ASKED_FOR}
        callbacks = trainer.callback_handler.callbacks
        trainer_attributes.put_back_each(
            callbacks, past["callbacks"], unpacker, "callbacks", _drawn
        )
        unpacker.put_some(past["trainer"], vars(trainer))
        state, is_over = trainer.state, past["is_over"]
        if state.max_steps <= state.global_step < asked["max_steps"]:
            trainer.control.should_training_stop = False  # it was asked for more since
            is_over = past["consumed"] >= frame.f_locals["steps_in_epoch"]
        vars(state).update(asked)
        values = frame.f_locals
        values["step"] = past["consumed"] - 1
        values["num_update_steps_trained"] = past["updates"]
        if is_over:
            values["num_update_steps_per_epoch"] = past["updates"]
        unpacker.put_some(past["local"], values)
        keep_locals(frame)

    def files(self, weights: Weights) -> Files:
        """What `save_pretrained` of the model, and of what prepares its data, writes."""
        model, state_dict = self.trainer.model, weights(self.trainer.model)
        if state_dict is None or not hasattr(model, "save_pretrained"):
            return
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder, state_dict=state_dict)
            if hasattr(self.trainer.processing_class, "save_pretrained"):
                self.trainer.processing_class.save_pretrained(folder)
            for path in sorted(glob.glob(os.path.join(folder, "**"), recursive=True)):
                if os.path.isfile(path):
                    with open(path, "rb") as file:
                        name = os.path.relpath(path, folder)
                        yield os.path.join("pretrained", name), memoryview(file.read())


class _Moved:
    """In place of the loader of the epoch under way: its iterator has come to its batch."""

    def __init__(
        self, session: TorchSession, run: FrameworkRun, driver: HuggingFace, loader: Any
    ) -> None:
        self._session = session
        self._run = run
        self._driver = driver
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Any]:
        iterator: Iterator[Any] = iter(self._loader)
        self._driver.frame = frame = sys._getframe(1)
        with self._session.restoring():
            self._run.go_on(frame, lambda: lambda: next(iterator))
        self._driver.frame = None
        return iterator


def install(session: TorchSession) -> None:
    """Hook the module `transformers.trainer`, which has just been imported."""
    trainer_class = private.find(private.HF_TRAINER, "Trainer")
    handler = private.find(private.HF_CALLBACKS, "CallbackHandler")
    original_log = handler.on_log

    @functools.wraps(original_log)
    def on_log(self: Any, args: Any, state: Any, control: Any, logs: Any, **kwargs: Any) -> Any:
        logged(session, {k: v for k, v in logs.items() if not k.endswith(_NOT_METRICS)})
        return original_log(self, args, state, control, logs, **kwargs)

    handler.on_log = on_log
    _hook_train(session, trainer_class)
    _hook_epoch(session, trainer_class)


def _of(session: TorchSession, trainer: Any) -> tuple[FrameworkRun, HuggingFace] | None:
    run = session.run
    if (
        not isinstance(run, FrameworkRun)
        or not isinstance(run.driver, HuggingFace)
        or run.driver.trainer is not trainer
    ):
        return None
    return run, run.driver


def _hook_train(session: TorchSession, trainer_class: Any) -> None:
    original, begin = trainer_class.train, trainer_class._init_training_state

    @functools.wraps(original)
    def train(self: Any, *args: Any, **kwargs: Any) -> Any:
        with running(session, HuggingFace(self)):
            return original(self, *args, **kwargs)

    @functools.wraps(begin)
    def init_training_state(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = begin(self, *args, **kwargs)
        mine = _of(session, self)
        past = None if mine is None else mine[0].past
        return result if past is None else (past["epoch"], 0)

    trainer_class.train = train
    trainer_class._init_training_state = init_training_state


def _hook_epoch(session: TorchSession, trainer_class: Any) -> None:
    original, follow = trainer_class._run_epoch, trainer_class._maybe_log_save_evaluate
    signature = inspect.signature(original)

    @functools.wraps(original)
    def run_epoch(self: Any, *args: Any, **kwargs: Any) -> Any:
        mine = _of(session, self)
        given = signature.bind(self, *args, **kwargs).arguments
        if mine is not None:
            run, driver = mine
            driver.epoch_begins(given["epoch"], given["train_dataloader"])
            run.begin_reading()
            run.loop_begins()
            if run.past is not None:
                loader = given["train_dataloader"]
                given["train_dataloader"] = _Moved(session, run, driver, loader)
        return original(**given)

    @functools.wraps(follow)
    def maybe_log_save_evaluate(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = follow(self, *args, **kwargs)
        mine = _of(session, self)
        if mine is not None and mine[0].stepped:
            run, driver = mine
            driver.frame = _frame_of(sys._getframe(1), original.__code__)
            try:
                run.boundary()
            finally:
                driver.frame = None
        return result

    trainer_class._run_epoch = run_epoch
    trainer_class._maybe_log_save_evaluate = maybe_log_save_evaluate


def _frame_of(frame: types.FrameType | None, code: types.CodeType) -> types.FrameType | None:
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame


def _drawn(callback: Any) -> Collection[str]:
    """Up to which step a progress bar is drawn: that of this process is drawn up to none."""
    bar = private.find(private.HF_CALLBACKS, "ProgressCallback")
    return ("current_step",) if isinstance(callback, bar) else ()


def _state_classes() -> tuple[type, ...]:
    found = (private.find(private.HF_CALLBACKS, n) for n in ("TrainerState", "TrainerControl"))
    return tuple(found)
