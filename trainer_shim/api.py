"""The explicit interface: three lines in a training loop, of any framework or none.

Rule: a program that uses it runs the same without Hermes; it is then never suspended and
`report` does nothing.
"""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable

from trainer_shim import reach, snapshot, sown
from trainer_shim.agent import Agent

Save = Callable[[str], object]

# What a node takes from a host, and the head from a node.
_LARGEST_STEP = 2**53


@dataclass(frozen=True)
class Resume:
    """Where to go on: `step` iterations are done, `path` holds what `save` wrote then."""

    step: int
    path: str


class Trial:
    """The trial that this program is; see `attach`."""

    def __init__(self, agent: Agent | None, params: Mapping[str, Any]) -> None:
        self.params = dict(params)
        self.resume: Resume | None = None
        self._agent = agent
        self._save: Save | None = None
        if agent is None:
            return
        sown.leave_out(lambda: True)  # how much of what follows is run again is the author's affair
        agent.hello("explicit")
        if agent.restore is not None:
            step = int(snapshot.verify(agent.restore)["step"])
            self.resume = Resume(step, agent.restore)
            agent.page.step = step
            agent.changes.clear()  # the program is given the new values, and restores itself
            agent.restored()

    def report(self, step: int, loss: Any = None, save: Save | None = None, **metrics: Any) -> None:
        """Say that `step` iterations are done, with the loss of the last one.

        Here the program may be held, and with `save` also checkpointed: `save(directory)` is
        called to write whatever `resume.path` must hold later. Values are anything that
        float() takes; they are converted when a report is due. When the program ends well, `save`
        is called once more.

        Raises ValueError for a step that is not above the last one.
        """
        agent = self._agent
        if agent is None:
            return
        last, step = agent.page.step, operator.index(step)
        if not last < step <= _LARGEST_STEP:
            raise ValueError(
                f"report of step {step}: expected more than {last}, the steps done so far, and no"
                f" more than {_LARGEST_STEP}"
            )
        if loss is not None:
            metrics["loss"] = loss.detach() if hasattr(loss, "detach") else loss
        if save is not self._save or not agent.page.looping:
            self._begin(agent, save)
        agent.record(step, metrics)
        agent.boundary(step)

    def _begin(self, agent: Agent, save: Save | None) -> None:
        if save is None:
            agent.capture = agent.end = None
            agent.fidelity("park-only", "the program reports without save=")
        else:
            agent.capture = lambda: _AuthorsFiles(save)
            agent.end = lambda: (agent.page.step, _AuthorsFiles(save))
            agent.fidelity("author", "the program saves and restores itself")
        self._save = save
        agent.loop(True)


class _AuthorsFiles:
    """A checkpoint whose files the program writes itself.

    The program's state changes as soon as it goes on, so its files are written at the
    boundary; summing, syncing and renaming them can wait.
    """

    def __init__(self, save: Save) -> None:
        self._save = save

    def prepare(self, builder: snapshot.Builder) -> None:
        """Have the program write its files."""
        self._save(builder.partial)

    def write(self, builder: snapshot.Builder) -> None:
        """Take its files over."""
        builder.adopt()


def attach() -> Trial:
    """The trial that this program is: `params`, `resume`, and `report` for its loop.

    Started by Hermes, the parameters are the trial's; otherwise they are those of the
    environment variable HERMES_PARAMETERS (a JSON object), or none.
    """
    agent = reach.claim()
    params = json.loads(os.environ.get("HERMES_PARAMETERS", "{}"))
    return Trial(agent, params if agent is None else agent.parameters or params)
