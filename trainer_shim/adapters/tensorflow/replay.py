"""What every TensorFlow program that is run again from its first line has in common.

What the program learned is told to it from a journal, up to the boundary of the
checkpoint; there its variables get their values back. The boundary is always that of the last
training step, also once the program has ended: from there more steps would have gone on.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from trainer_shim.adapters.tensorflow import private, store
from trainer_shim.adapters.tensorflow.fidelity import LoopFidelity
from trainer_shim.adapters.tensorflow.journal import LIMIT_BYTES, ReplayJournal
from trainer_shim.agent import Agent, CannotCapture, CannotCaptureNow, refused
from trainer_shim.saver import OtherProgram


class ReplayedProgram(ABC):
    """The training steps of one kind in this process, and the way back to a checkpoint of them.

    `name` is that of the checkpoint's files, `exact` why a resume is exact.
    """

    def __init__(self, agent: Agent, name: str, exact: str) -> None:
        self.agent = agent
        self.steps = 0
        self.is_off = False
        self.standing = LoopFidelity(agent, self._capture, self._end, exact)
        self.journal = ReplayJournal()
        self._name = name
        self._known = 0  # answers that the program had at the last boundary
        self._position: store.State | None = None
        self._arrays: list[bytes] = []
        self._thread = threading.get_ident()
        if agent.restore is not None:
            with self.standing.restoring():
                self._begin_again(agent.restore)

    # Of each kind.

    @abstractmethod
    def _last_step(self) -> tuple[str, int | None]:
        """What the last training step was, and a checksum of its data if they repeat."""

    @abstractmethod
    def _copy_variables(self) -> tuple[list[Any], list[Any]]:
        """The variables at the last boundary: their kinds for the state, and their bytes.

        Raises CannotCapture.
        """

    @abstractmethod
    def _put_back(self, kinds: list[Any], arrays: Iterator[bytes]) -> None:
        """Give the variables their values back."""

    def _share(self) -> store.State:
        """What part each process has in a step, of those that share one."""
        return {}

    # Boundaries.

    def _stepped(self) -> None:
        """A training step is done, or was told."""
        self.steps += 1
        if self._position is not None:
            self.agent.passes_training()
        self._known = self.journal.count

    def _boundary(self, loss: Any, examples: int = 0) -> None:
        """Between two steps, not on the way back."""
        if loss is None:
            self.agent.record(self.steps, {}, examples)
        else:
            self.agent.record_signal(self.steps, loss, examples)
        if self.journal.bytes > LIMIT_BYTES and not self.standing.is_obstructed:
            size = self.journal.bytes >> 20
            self.standing.obstacle(f"what its steps returned takes {size} MiB in each checkpoint")
            self.journal = ReplayJournal()
        self.agent.boundary(self.steps)

    # Checkpoints.

    def _capture(self) -> store.LoopSnapshot:
        try:
            label, data = self._last_step()
            kinds, arrays = self._copy_variables()
            rows, codes, values = self.journal.copy(self._known)
        except CannotCapture:
            raise
        except Exception as error:  # whatever the framework raises: this run trains on
            found = refused(error)
            if not isinstance(found, CannotCaptureNow):
                self.standing.obstacle(str(found))
            raise found from error
        state = {"steps": self.steps, "step": label, "data": data, **self._share()}
        state |= {"rows": rows, "variables": kinds}
        return store.LoopSnapshot(self._name, state, [codes, values, *arrays], beside=2)

    def _end(self) -> tuple[int, store.LoopSnapshot]:
        return self.steps, self._capture()

    def _begin_again(self, folder: str) -> None:
        saved = store.load(folder, self._name)
        if saved is None:
            self.is_off = True  # another adapter brings this program back
            return
        self.agent.is_returning = True
        self._position, self._arrays = saved.state, saved.arrays
        self.journal = ReplayJournal(self._position["rows"], *self._arrays[:2])
        self.agent.hello(private.framework())

    def look_whether_all_is_told(self) -> None:
        """Go on by itself from where the checkpoint was taken, if that is here."""
        if self._position is not None and not self.journal.is_telling:
            with self.standing.restoring():
                self._go_on(self._position)

    def _go_on(self, position: store.State) -> None:
        label, data = self._last_step()
        if (self.steps, label) != (position["steps"], position["step"]):
            now, then = (self.steps, label), (position["steps"], position["step"])
            raise OtherProgram(f"this is step {now}, the checkpoint is of {then}")
        if None not in (data, position["data"]) and data != position["data"]:
            raise OtherProgram("the data of the last step differ from those before")
        self._put_back(position["variables"], iter(self._arrays[2:]))
        self._position, self._arrays = None, []
        self.agent.page.step = self.steps
        self.agent.restored()
        self.standing.begin(self.steps)
