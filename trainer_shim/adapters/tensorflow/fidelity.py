"""How exact a resume of a TensorFlow loop is, as far as is known by now.

The worst finding decides, and the first one of that kind is the reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable

from trainer_shim.adapters import seeds_private
from trainer_shim.adapters.tensorflow import private
from trainer_shim.agent import Agent
from trainer_shim.saver import OtherProgram

LEVELS = ("exact", "exact-if-deterministic", "parameters-exact", "park-only")


class LoopFidelity:
    """What a resume of this process promises."""

    def __init__(
        self,
        agent: Agent,
        capture: Callable[[], Any],
        end: Callable[[], tuple[int, Any]],
        exact: str,
    ) -> None:
        self._agent = agent
        self._capture, self._end = capture, end
        self._level, self._reason = "exact", exact
        self._framework = ""  # of before it was known whether the processes are replicas
        self.are_replicas = False
        self.has_begun = False
        self.is_obstructed = False  # whether checkpoints are out of the question
        for reason in (private.untested(), seeds_private.missing()):
            if reason is not None:
                self.lower("park-only", reason)

    @property
    def repeats(self) -> bool:
        """Whether the program is given the same data when it runs again."""
        return LEVELS.index(self._level) < LEVELS.index("parameters-exact")

    def lower(self, level: str, reason: str) -> None:
        """From here on a resume is no better than `level`."""
        if LEVELS.index(level) > LEVELS.index(self._level):
            self._level, self._reason = level, reason
            self.is_obstructed = level == "park-only"
            if self.has_begun:
                self._say()

    def obstacle(self, reason: str) -> None:
        """From here on this program can only be parked."""
        self.lower("park-only", reason)

    def replicates(self, are_replicas: bool) -> None:
        """Whether the checkpoints are of any number of processes, by all that was trained."""
        before, self.are_replicas = self.are_replicas, are_replicas
        if self.has_begun and before != are_replicas:
            self._say()

    def begin(self, step: int) -> None:
        """The first step of this process comes next; `step` are done."""
        import tensorflow as tf

        if self.has_begun:
            return
        self.has_begun = True
        agent = self._agent
        if agent.framework == "none":
            agent.hello(private.framework())
        self._framework = agent.framework
        devices = {device.device_type for device in tf.config.list_logical_devices()}
        determinism = private.find(private.DETERMINISM, "is_op_determinism_enabled")()
        if devices != {"CPU"} and not determinism:
            self.lower("exact-if-deterministic", "operations on a GPU may not be deterministic")
        self._say()
        agent.page.step = step
        agent.loop(True)

    def _say(self) -> None:
        agent = self._agent
        agent.capture = None if self.is_obstructed else self._capture
        agent.end = None if self.is_obstructed else self._end
        agent.framework = private.framework(True) if self.are_replicas else self._framework
        agent.fidelity(self._level, self._reason)

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """End the process if the checkpoint turns out not to be this program's."""
        try:
            yield
        except OtherProgram as error:
            self._agent.failed("restore", str(error), f"OtherProgram: {error}")
            os._exit(1)
