"""The explicit interface: three lines in a training loop, of any framework or none, and one line
that adds a metric to any program.

A program that uses it runs the same without Hermes; it is then never suspended, and `report` only
checks its arguments.
"""

from __future__ import annotations

import contextlib
import json
import operator
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Callable

from trainer_shim import checkpoint_dir, child_interpreters
from trainer_shim.agent import Agent, CannotCaptureNow
from trainer_shim.reporting import LONGEST_NAME, is_name

Save = Callable[[str], object]

# What a node takes from a host, and the head from a node.
_LARGEST_STEP = 2**53
_SHOWN = 60  # characters of a value
_UNREAD = (
    "the program has never read trial.params, which have the new value after a report; or it says"
    ' how to set it: trainer_shim.on_change("{}", function)'
)


@dataclass(frozen=True)
class Resume:
    """Where to go on."""

    #: How many iterations are done.
    step: int
    #: The directory with what `save` wrote then.
    path: str


class Trial:
    """The trial that this program is; see `attach`."""

    def __init__(self, agent: Agent | None, params: Mapping[str, Any]) -> None:
        self._params = dict(params)
        self._first = {} if agent is None else agent.first_values()
        self._reads_params = False
        self._unread: tuple[str, Any] | None = None  # what a sequence has set in them last
        self.resume: Resume | None = None
        self._agent = agent
        self._save: Save | None = None
        self._last = 0  # the last step reported
        self._saves_here = False  # the last boundary's report has a `save`
        self._saves_last = False  # of a step's reports the first has no `save`, and a later one has
        self._owes_save = False  # the boundary of this step is at the report that has it
        self._checks = _Checks("trial.report")
        if agent is None:
            return
        agent.hello("explicit")
        if agent.restore is not None:
            self.resume = Resume(agent.restore_step, agent.restore)
            agent.page.step = self._last = agent.restore_step
            agent.changes.clear()  # the program is given the new values, and restores itself
        agent.put = self._put
        if agent.restore is not None:
            agent.restored()

    @property
    def params(self) -> dict[str, Any]:
        """Its hyper-parameters. After a `report`, those that change have their new values."""
        self._reads_params = True
        return self._params

    def _put(self, name: str, value: Any) -> bool:
        if self._first.get(name) != value:
            self._unread = name, value
        self._params[name] = value
        return True

    def report(self, step: int, loss: Any = None, save: Save | None = None, **metrics: Any) -> None:
        """Say that iterations are done. Here the program may be held and checkpointed.

        What cannot be reported (another kind of value, a step below the last one) is left out and
        said on stderr, once for each kind, with Hermes and without.

        Args:
            step: how many iterations are done in all. Further reports of the same step add their
                values to it.
            loss: that of the last iteration: anything that float() takes. It is converted when a
                report is due.
            save: called with a directory, to write whatever `resume.path` must hold later; also
                once when the program ends well. If a step has several reports, give it with the
                last: what is told of a step after its checkpoint is not told again.
            metrics: further values, by name.

        Raises:
            ValueError: only if the trial was resumed and the program's first step shows that it
                began anew: what it trains is then not what the trial is.
        """
        given = self._step(step)
        if given is None:
            return
        if loss is not None:
            metrics["loss"] = loss
        metrics = dict(self._checks.reportable(metrics))
        if save is not None and not callable(save):
            self._checks.leave_out("save", save, "a function that takes a directory")
            save = None
        is_further, self._last = given == self._last, given
        agent = self._agent
        if agent is None:
            return
        if self._unread is not None and not self._reads_params:
            name, value = self._unread
            agent.cannot_put(f"{name} to {value} before step {given}", _UNREAD.format(name))
        agent.record(given, metrics)
        if is_further:
            if save is not None:
                self._saves_last = self._saves_last or self._save is None
                self._boundary(agent, given, save)
        elif save is None and self._saves_last and not self._owes_save:
            # As in the step before, the report that has it is to come.
            self._owes_save = True
            agent.page.step = given
        else:
            self._saves_last = self._saves_last and not self._owes_save
            self._boundary(agent, given, save)

    def _boundary(self, agent: Agent, step: int, save: Save | None) -> None:
        self._owes_save = False
        self._saves_here = save is not None
        if (save is not None and save is not self._save) or not agent.page.looping:
            self._begin(agent, save)
        agent.boundary(step)

    def _step(self, step: Any) -> int | None:
        """The step as a number, None if it is left out. Raises ValueError."""
        try:
            given = operator.index(step)
        except Exception:  # whatever a program's own kind of value raises
            self._checks.leave_out("step", step, "a whole number")
            return None
        resume = self.resume
        if resume is not None and self._last == resume.step and given <= resume.step:
            raise ValueError(
                f"report of step {_shown(given)}: this trial was resumed at step {resume.step}, and"
                f" the program must go on from there: load what it saved from trial.resume.path,"
                f" and report step {resume.step + 1} next"
            )
        if not max(self._last, 1) <= given <= _LARGEST_STEP:
            low = f"{max(self._last, 1)} or more, for that is where the program is"
            self._checks.leave_out("step", given, f"{low}, and no more than {_LARGEST_STEP}")
            return None
        return given

    def _begin(self, agent: Agent, save: Save | None) -> None:
        self._save = self._save if save is None else save
        if self._save is None:
            agent.capture = agent.end = None
            agent.fidelity("park-only", "the program reports without save=")
        else:
            agent.capture = self._capture
            agent.end = lambda: (agent.page.step, self._capture())
            agent.fidelity("author", "the program saves and restores itself")
        agent.loop(True)

    def _capture(self) -> _AuthorsFiles:
        """Raises CannotCaptureNow at a step that the program reports without `save`, though it has
        given one before: what that one would write is known of its own steps only."""
        if self._save is None or not self._saves_here:
            raise CannotCaptureNow("the program's last report has no save=")
        return _AuthorsFiles(self._save)


class _Checks:
    """What of the values that `caller` is given can be told, and words for what cannot."""

    def __init__(self, caller: str) -> None:
        self._caller = caller
        self._left_out: set[str] = set()

    def reportable(self, metrics: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """The metrics that can be told."""
        for name, value in metrics.items():
            name = str.__str__(name)  # of a subclass, which may raise whatever is asked of it
            if not is_name(name):
                expected = f"1 to {LONGEST_NAME} printable characters"
                self.leave_out("name of a metric", name, expected)
                continue
            try:
                yield name, _number(value)
            except Exception:  # whatever a program's own kind of value raises
                self.leave_out(f"value of {name!r}", value, "one number that float() takes")

    def leave_out(self, what: str, value: Any, expected: str) -> None:
        """Say that a value is not reported, the first time that it is one of this kind."""
        if what in self._left_out:
            return
        self._left_out.add(what)
        with contextlib.suppress(Exception):  # there may be no stderr
            print(
                f"hermes: {self._caller}: {ascii(what)[1:-1]}: {_shown(value)}:"
                f" expected {expected}; left out",
                file=sys.stderr,
                flush=True,
            )


def _number(value: Any) -> Any:
    """The value as it is now, apart from the graph that computed it. Raises an error if it is no
    number.

    What an accelerator may still compute is not waited for: float() of it comes with the report.
    """
    dtype: Any = getattr(value, "dtype", None)
    if hasattr(value, "detach") and dtype is not None:  # of PyTorch
        if value.numel() == 1 and not value.is_complex():
            return value.detach().clone()  # the program may change it in place
    elif hasattr(value, "is_fully_addressable") and value.size == 1 and dtype.kind in "biufV":
        return value  # of JAX, where nothing is changed in place
    elif hasattr(value, "item") and dtype is not None:  # of NumPy
        value = value.item()
    return float(value)


def _shown(value: Any) -> str:
    """A value in a message, of whatever kind and length."""
    try:
        text = ascii(value)
    except Exception:  # such as an int of more digits than Python prints
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class _AuthorsFiles:
    """A checkpoint whose files the program writes itself.

    The program's state changes as soon as it goes on, so its files are written at the
    boundary; summing, syncing and renaming them can wait.
    """

    def __init__(self, save: Save) -> None:
        self._save = save

    def prepare(self, builder: checkpoint_dir.Builder) -> None:
        """Have the program write its files."""
        self._save(builder.partial)

    def write(self, builder: checkpoint_dir.Builder) -> None:
        """Take its files over."""
        builder.adopt()


def on_change(name: str, set_value: Callable[[Any], object]) -> None:
    """Have a hyper-parameter that changes while the program trains set by the program itself:
    `trainer_shim.on_change("dropout", set_dropout)`. Call it before the training begins.

    Without Hermes, and where the parameter doesn't change, `set_value` is never called.

    Args:
        name: a parameter that is a `sequence` in the study file.
        set_value: called with a value between two iterations, the next of which is to be trained
            with it: after the first iteration, at the beginning of each stage, and after the
            program was brought back from a checkpoint.
    """
    agent = child_interpreters.claim()
    if agent is not None:
        agent.setters[name] = set_value


_logged = _Checks("trainer_shim.log")


def log(metrics: Mapping[str, Any] | None = None, /, **named: Any) -> None:
    """Report metrics at the current step of the training: `trainer_shim.log(val_acc=0.93)`.

    They are added to what the framework's adapter reports, and change nothing else: an unchanged
    loop is suspended and resumed as it is without them. If the adapter itself reports a name, its
    value is kept.

    Never raises. What is not a number is left out, and stderr says so once for each name, with
    Hermes and without.

    Args:
        metrics: values whose names are no keywords: `log({"val/acc": 0.93})`.
        named: values by name: anything that float() takes, which is called here. One that an
            accelerator still computes is waited for.
    """
    with contextlib.suppress(Exception):  # whatever a program's own kind of value raises
        if metrics is not None and not isinstance(metrics, Mapping):
            _logged.leave_out("metrics", metrics, "a mapping from names to numbers")
            metrics = None
        given = {str(name): value for name, value in (metrics or {}).items()}
        told = dict(_logged.reportable({**given, **named}))
        agent = child_interpreters.claim()
        if agent is not None:
            agent.is_the_program = True
            agent.note({name: float(value) for name, value in told.items()})


def attach() -> Trial:
    """The trial that this program is.

    Returns:
        Its `params`, its `resume`, and `report` for its loop. After a `report` the `params` that
        are sequences in the study file have the values of the next iteration. Without Hermes its
        parameters are those of the environment variable HERMES_PARAMETERS (a JSON object), or none.
    """
    agent = child_interpreters.claim()
    params = json.loads(os.environ.get("HERMES_PARAMETERS", "{}"))
    return Trial(agent, params if agent is None else agent.parameters or params)
