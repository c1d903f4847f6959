"""How true a resume of a PyTorch program is, as far as it is known by now.

Rule: never exact; and what is found out to stand in the way decides, the first of it by name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable

from trainer_shim.adapters import seeds_private, torch_counters
from trainer_shim.adapters import torch_private as private
from trainer_shim.adapters.torch_state import OtherProgram
from trainer_shim.adapters.torch_whole import CannotEver
from trainer_shim.agent import Agent

_PROMISE = (
    "parameters, optimizers, schedulers, random numbers, the loaders' positions and plain "
    "variables are brought back; other objects that the loop keeps in Python are not: "
    "trainer_shim.attach() and report(step, loss=..., save=...) would save them too"
)
_DRIVEN = (
    "parameters, optimizers, schedulers, random numbers, the place in the data, and what {} and "
    "its callbacks count and log are brought back; other objects that the program keeps in Python "
    "are not: trainer_shim.attach() and report(step, loss=..., save=...) would save them too"
)
# Said with what is in the way of Hermes, and not of the program's own say.
_WAY_OUT = "trainer_shim.attach() and report(step, loss=..., save=...) let it say what to save"


class Standing:
    """What a resume of this process promises."""

    def __init__(
        self, agent: Agent, capture: Callable[[], Any], end: Callable[[], tuple[int, Any]]
    ) -> None:
        import torch

        self._agent = agent
        self._capture = capture
        self._end = end
        self._first_seed = torch.initial_seed()
        reasons = (private.untested(), seeds_private.missing())
        self._obstacles = [reason for reason in reasons if reason is not None]
        self._promise = _PROMISE

    def driven(self, framework: str, untested: str | None) -> None:
        """The program trains by this framework's own loop."""
        self._promise = _DRIVEN.format(framework)
        if untested is not None:
            self._keep_parked(untested)

    def obstacle(self, reason: str) -> None:
        """From here on this program can only be parked."""
        self._keep_parked(f"{reason}; {_WAY_OUT}")

    def _keep_parked(self, reason: str) -> None:
        if reason not in self._obstacles:
            self._obstacles.append(reason)
        self._judge()

    def other_trained(self, reason: str) -> None:
        """Another adapter has looked after what was trained: for loops after it there is none."""
        if reason not in self._obstacles:
            self._obstacles.append(reason)

    def look(self) -> None:
        """Look at what is known once the program trains, and tell it."""
        import torch

        if self._agent.seed is None and torch.initial_seed() == self._first_seed:
            self._keep_parked("neither the program nor the trial has a seed: set one of them")
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            self._keep_parked("torch.distributed: the processes would have to be saved together")
        counter = torch_counters.obstacle(sys._getframe())
        if counter is not None:
            self.obstacle(counter)
        self._judge()

    def _judge(self) -> None:
        """Tell the host what a resume promises by what is known now."""
        agent = self._agent
        if self._obstacles:
            agent.capture = agent.end = None
            agent.fidelity("park-only", self._obstacles[0])
        else:
            agent.capture, agent.end = self._take, self._end
            agent.fidelity("parameters-exact", self._promise)

    def _take(self) -> Any:
        try:
            return self._capture()
        except CannotEver as error:
            self.obstacle(str(error))
            raise


@contextmanager
def refusing(agent: Agent) -> Iterator[None]:
    """End the process if the checkpoint turns out not to be this program's."""
    try:
        yield
    except OtherProgram as error:
        agent.failed("restore", str(error), f"OtherProgram: {error}")
        os._exit(1)
