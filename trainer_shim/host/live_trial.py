"""What a host knows of its trial: files, processes, and the newest run."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any, Callable

from trainer_shim.channel.frames import Message
from trainer_shim.host import image
from trainer_shim.host.checkpoint_forms import CHECKPOINT, IMAGE, Forms
from trainer_shim.host.device_memory import DeviceMemory, Moved
from trainer_shim.host.event_log import EventLog
from trainer_shim.host.freeze import WorkGroup
from trainer_shim.host.imaging import Images
from trainer_shim.host.output import Output
from trainer_shim.host.ranks import OtherRanks
from trainer_shim.host.run import ProgramRun
from trainer_shim.host.worker import Worker
from trainer_shim.spec import Spec


class LiveTrial(ABC):
    """One trial on this node."""

    def __init__(self, spec: Spec, publish: Callable[[Message], None]) -> None:
        self.spec = spec
        self.images = Images(spec)
        self.device_memory = DeviceMemory(bool(spec.gpu), spec.moves_device_memory)
        self.forms = Forms(spec.directory)
        self.log = EventLog(os.path.join(spec.directory, "events.jsonl"))
        self.output = Output(spec.output, spec.output_limit_bytes)
        self.group = WorkGroup(os.getpid(), spec.cgroup_work)
        self.ranks = OtherRanks(spec, self.group)
        self.attempt = 0
        #: Idle, running, parked or ended.
        self.phase = "idle"
        self.begins_at_once = True
        self._publish = publish
        self.run = self.new_run(None, None)

    def new_run(self, worker: Worker | None, restore: str | None) -> ProgramRun:
        """Nothing is known yet of what `worker` does."""
        self.output.reader = None
        how = self.emit, self.spec, self.ranks.end, self.images.promise
        return ProgramRun(worker, restore, self.group, self.output, *how)

    @property
    def worker(self) -> Worker | None:
        """The training process, while there is one."""
        return self.run.worker

    def emit(self, kind: str, **fields: Any) -> None:
        """Number an event, keep it until acknowledged, send it to the daemon if one is there."""
        if kind == "started" and self.begins_at_once:
            self.forms.began(_form_of(fields["restored_from"]), fields["seconds"])
        if kind == "started" and self.ranks.others:
            fields["rank_pids"] = [rank.worker.pid for rank in self.ranks.others.values()]
        self._publish(self.log.append(kind, self.attempt, **fields))

    @abstractmethod
    def heard(self, message: Message) -> None:
        """One frame from the agent."""

    def hear_out(self) -> None:
        """Take in all that the agent has said by now."""
        if self.worker is not None:
            for message in self.worker.channel.read():
                self.heard(message)

    @abstractmethod
    def heard_of_rank(self, number: int) -> None:
        """Take in what the agent of another of its processes has said."""

    @property
    @abstractmethod
    def is_left(self) -> bool:
        """Whether the first process has ended, and the others are waited for."""

    @property
    def can_be_rebuilt(self) -> bool:
        """Whether the trial can go on from something durable."""
        return self.run.level != "park-only" or self.images.work

    def form(self, is_last: bool) -> tuple[str, str]:
        """How its progress is written down, and why. What is the trial's last may be loaded by
        people, who can do nothing with an image."""
        level, problem = self.run.level, self.images.problem
        if not self.images.suit(level):
            return CHECKPOINT, f"no image can be made: {problem}" if problem else ""
        if is_last and level == "exact":
            return CHECKPOINT, "it ends here"
        return self.forms.choose(level, self.group.memory_bytes())

    def tell_save(self, id: str, wait: bool, is_fork: bool = False) -> None:
        """Have the agent write its progress as checkpoint `id`, maybe for others to go on from."""
        if self.ranks.others:
            self.ranks.save(id, is_fork)
        elif self.worker is not None:
            self.worker.tell("save", id=id, wait=wait, is_fork=is_fork)

    def ask_to_hold(self) -> None:
        """Have the agent hold at the next boundary."""
        if self.ranks.others:
            self.ranks.halt()
        elif self.worker is not None:
            self.worker.tell("suspend")

    def cannot_image(self, why: str) -> None:
        """Nothing is promised any more that only an image would keep."""
        self.images.problem = why
        self.run.say_fidelity()

    def image_failed(self, id: str | None, why: str, in_passing: bool) -> None:
        """No image was made as checkpoint `id`. One in passing that found the disk full is tried
        again when the next is due."""
        if not (in_passing and any(words in why for words in image.DISK_FULL)):
            self.cannot_image(why)
        self.emit("checkpoint_failed", id=id, reason=why)

    def take_image(self, id: str, why: str) -> None:
        """Have an image of the stopped program written as checkpoint `id`, for this reason."""
        worker, run = self.worker, self.run
        assert worker is not None
        self.hear_out()
        for number in list(self.ranks.others):
            self.heard_of_rank(number)
        self.log.write_down(self.attempt, id)
        self.output.mark(id, worker.pipe)
        self.ranks.mark(id)
        host = {**worker.state(), "run": run.state()}
        if self.ranks.others:
            host["ranks"] = self.ranks.state()
        fields = {
            "trial": self.spec.trial,
            "attempt": self.attempt,
            "step": run.step,
            "framework": "none",
            "fidelity": "exact",
            "reason": self.images.promised,
            "why": why,
            "parameters": self.spec.parameters,
            "host": host,
            "gpu": self.spec.gpu if self.device_memory.is_away else "",
            "away": list(self.device_memory.away),
            **({"is_fork": True} if run.at_boundary and run.fork_checkpoint else {}),
        }
        self.group.tools.add(self.images.take(worker.root, id, fields))

    def take_off_device(self, then: Moved) -> None:
        """Have what the program has on its GPU moved to the host's memory."""
        self.group.tools.add(self.device_memory.take_off(self.group.members(), then))

    def put_back_on_device(self, then: Moved) -> None:
        """Have it moved back; the program goes on."""
        self.group.tools.add(self.device_memory.put_back(then))

    def close(self) -> None:
        """Kill what is left and close the files."""
        self.images.close()
        self.device_memory.forget()
        self.group.kill()
        self.log.close()
        self.output.close()


def _form_of(restored_from: str | None) -> str | None:
    if restored_from is None:
        return None
    return IMAGE if image.is_image(restored_from) else CHECKPOINT
