"""What a host has of its trial: files, processes, and what is known of the newest run."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any, Callable

from trainer_shim.events import EventLog
from trainer_shim.freeze import WorkGroup
from trainer_shim.output import Output
from trainer_shim.run import Run
from trainer_shim.spec import Spec
from trainer_shim.wire import Message
from trainer_shim.worker import Worker


class LiveTrial(ABC):
    """One trial on this node; `phase` is idle, running, parked or ended."""

    def __init__(self, spec: Spec, publish: Callable[[Message], None]) -> None:
        self.spec = spec
        self.log = EventLog(os.path.join(spec.directory, "events.jsonl"))
        self.output = Output(spec.output, spec.output_limit_bytes)
        self.group = WorkGroup(os.getpid(), spec.cgroup_work)
        self.attempt = 0
        self.phase = "idle"
        self._publish = publish
        self.run = self.new_run(None, None)

    def new_run(self, worker: Worker | None, restore: str | None) -> Run:
        """Nothing is known yet of what `worker` does."""
        hung_seconds = self.spec.hung_seconds
        return Run(worker, restore, self.group, self.output, self.emit, hung_seconds)

    @property
    def worker(self) -> Worker | None:
        """The training process, while there is one."""
        return self.run.worker

    def emit(self, kind: str, **fields: Any) -> None:
        """Number an event, keep it until acknowledged, send it to the daemon if one is there."""
        self._publish(self.log.append(kind, self.attempt, **fields))

    @abstractmethod
    def heard(self, message: Message) -> None:
        """One frame from the agent."""

    def hear_out(self) -> None:
        """Take in all that the agent has said by now."""
        if self.worker is not None:
            for message in self.worker.channel.read():
                self.heard(message)

    @property
    def can_be_rebuilt(self) -> bool:
        """Whether a checkpoint of this program is worth anything."""
        return self.run.level != "park-only"

    def tell_save(self, id: str, wait: bool) -> None:
        """Have the agent write its progress as checkpoint `id`."""
        if self.worker is not None:
            self.worker.tell("save", id=id, wait=wait)

    def close(self) -> None:
        """Kill what is left and close the files."""
        self.group.kill()
        self.log.close()
        self.output.close()
