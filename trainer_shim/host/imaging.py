"""Makes images of a trial's program for its host: in a child process, one at a time.

The host's loop never waits for CRIU. If a program could not be imaged once, this host does not try
again; then only what the agent itself promises counts.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
from collections.abc import Mapping
from typing import Any, Callable

from trainer_shim import file_moves
from trainer_shim.channel.frames import FrameConnection, Message
from trainer_shim.channel.page import ControlPage
from trainer_shim.channel.pipes import pipe_pair
from trainer_shim.host import checkpoint_forms, deleted_files, image, world
from trainer_shim.host.event_log import boottime
from trainer_shim.host.freeze import enter_cgroup
from trainer_shim.host.image import ImageBroken, ImageError, NotHere, Source
from trainer_shim.host.output import Output
from trainer_shim.host.worker import Outside, Worker
from trainer_shim.program import connections
from trainer_shim.rerun.workdir_baseline import scan
from trainer_shim.spec import Spec

# Of the time that a program trains, images taken meanwhile may cost this part.
_SHARE = 0.01
_TMPDIR = "TMPDIR"
_MOST_NAMED = 3  # files, of those that are not held
# The kernel's PID_MAX_LIMIT.
_LAST_PID = 1 << 22
Tell = Callable[[Message], None]


class WorkingChild:
    """A fork of the host that does `work`; it says {"dumped": ...}, then {"done": ...} or
    {"error": ..., "broken": ...}, unless it has become another program."""

    def __init__(self, work: Callable[[Tell], Message], fork: Callable[[], int] = os.fork) -> None:
        self.fd, ours = os.pipe()
        os.set_blocking(self.fd, False)
        self._said = b""
        self.has_ended = False  # by its own words
        self.pid = fork()
        if self.pid == 0:
            self._work(work, ours)
        os.close(ours)

    def _work(self, work: Callable[[Tell], Message], fd: int) -> None:
        def tell(message: Message) -> None:
            os.write(fd, json.dumps(message).encode() + b"\n")

        try:
            tell({"done": work(tell)})
        except ImageError as error:
            tell({"error": str(error), "broken": isinstance(error, ImageBroken)})
        except BaseException as error:  # the host learns of it, as this process ends in any case
            tell({"error": f"{type(error).__name__}: {error}", "broken": False})
        finally:
            os._exit(0)

    def words(self) -> list[Message]:
        """What it has said since the last look."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.fd, 1 << 16):
                self._said += data
        *lines, self._said = self._said.split(b"\n")
        words = [json.loads(line) for line in lines]
        self.has_ended = self.has_ended or any("dumped" not in each for each in words)
        return words


class Images:
    """Whether images can be had of this trial's program, and the one that is being worked on."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._child: WorkingChild | None = None
        self._laid_out: Mapping[str, list[int]] = {}
        self._temporary = ""  # the folder of the program's temporary files, if that is its own,
        self._shown = ""  # and where the program finds it
        self._not_held: list[str] = []  # files elsewhere that it was seen to write
        self._asked_at = self._rests_until = 0.0
        self._until = math.inf
        #: A folder that is lost with the trial's world; None without one.
        self.memory: str | None = None
        self.id = ""  # the checkpoint that is or was written last
        self.problem = ""
        self._shown_at = spec.directory  # to the program
        self._are_ranks = bool(spec.ranks)
        if spec.criu and spec.gpu and (self._are_ranks or not spec.images_hold_device_memory):
            self.problem = "it has a GPU"
        elif spec.criu and self._are_ranks and not connections.are_held():
            self.problem = "its processes are connected with each other, which takes root's rights"
        elif spec.criu:
            try:
                self.memory = world.begin(spec.directory)
            except OSError as error:
                self.problem = str(error)

    # What may be counted on.

    @property
    def work(self) -> bool:
        """Whether nothing speaks against images."""
        return self.memory is not None and not self.problem

    def suit(self, level: str) -> bool:
        """Whether images may be made of a program of which a checkpoint promises `level`. From one,
        a process for each device can go on elsewhere, and on another number of devices."""
        return self.work and (level == "park-only" or not self._are_ranks)

    def serve(self, level: str) -> bool:
        """Whether a program of which a checkpoint promises `level` is kept better by an image."""
        return self.suit(level) and level not in checkpoint_forms.AS_GOOD

    def serve_others(self, level: str) -> bool:
        """Whether another trial could go on from such an image, too: in the machine's own
        namespaces its folder cannot be where this one's was."""
        return self.serve(level) and self._is_in_world and not self._are_ranks

    @property
    def _is_in_world(self) -> bool:
        return self.memory is not None and os.path.ismount(self.memory)

    def keep(self, level: str) -> bool:
        """Whether an image is as good as a checkpoint that promises `level`."""
        return self.suit(level) and level != checkpoint_forms.AUTHOR

    def promise(self, said: Message) -> Message:
        """What is promised of a resume, where the agent alone would promise this."""
        if self.serve(said["level"]):
            return {**said, "level": "exact", "reason": self.promised}
        if self.problem:
            return {**said, "reason": f"{said['reason']}; no image of it: {self.problem}"}
        return said

    @property
    def promised(self) -> str:
        """What an image holds, and where."""
        spec, held = self._spec, "its processes and its working copy"
        named = os.path.realpath(os.path.join(spec.cwd, spec.env.get(_TMPDIR, "/tmp")))
        if self._temporary:
            held = "its processes, its working copy and its TMPDIR"
        not_held = self._not_held[:_MOST_NAMED]
        if not self._temporary and not f"{named}/".startswith(f"{os.path.realpath(spec.cwd)}/"):
            not_held = [f"its TMPDIR ({named})", *not_held]
        if not_held:
            held += f", but not {', '.join(not_held)}"
        return f"images hold {held}, on {'its GPU' if spec.gpu else 'machines of one kind'}"

    @property
    def is_due(self) -> bool:
        """Whether one more, while the program runs, costs little of its time."""
        return boottime() >= self._rests_until

    # The work.

    @property
    def fd(self) -> int | None:
        """Where the child at work is heard."""
        return self._child.fd if self._child is not None else None

    def lay_out(self, is_anew: bool) -> Mapping[str, str]:
        """The program begins: what lies in its folder now is not its own. What it finds in its
        environment besides."""
        if not self.work:
            return {}
        world.number_high()
        self._laid_out = {name: stamp[:2] for name, stamp in scan(self._spec.cwd).items()}
        if is_anew:
            self.clear()
        return self._own_temporary()

    def _own_temporary(self) -> Mapping[str, str]:
        """Have a folder for the program's temporary files where they can be held."""
        folder = self._spec.temporary
        try:
            if not folder:
                return {}
            os.makedirs(folder, mode=0o700, exist_ok=True)
            self._shown = world.short_path(folder, self._is_in_world)
        except OSError:  # the program has what others have
            return {}
        self._temporary = folder
        return {_TMPDIR: self._shown}

    @property
    def may_need_temporary(self) -> bool:
        """Whether the program, tried again, may find its temporary files where they are: of what it
        may go on from an image brings its own, and a checkpoint of its framework does not."""
        try:
            names = os.listdir(self._spec.checkpoints)
        except OSError:  # a program may have put anything there
            return True
        return not all(image.is_image(os.path.join(self._spec.checkpoints, each)) for each in names)

    def clear(self) -> None:
        """Remove the program's temporary files: it has come to its end, or begins anew."""
        if self._spec.temporary:
            file_moves.remove_tree(self._spec.temporary)

    def close(self) -> None:
        """End what is being worked on, and what others in this world would find of it."""
        self.give_up()
        if os.path.islink(self._shown):
            os.unlink(self._shown)

    def take(self, pid: int, id: str, fields: Mapping[str, Any]) -> int:
        """Begin to write an image of the stopped tree below `pid`; the child's process id."""
        spec, memory = self._spec, self.memory
        source = Source(pid, spec.cwd, self._laid_out, self._temporary)
        assert memory is not None
        self.id = id

        said = {**fields, "directory": self._shown_at}

        def work(tell: Tell) -> Message:
            def dumped(not_held: list[str]) -> None:
                tell({"dumped": not_held})

            return image.take(spec.criu, source, spec.checkpoints, id, said, memory, dumped)

        return self._begin(work)

    def expect(self, manifest: Mapping[str, Any]) -> None:
        """What is to be brought back finds its folders where they were. Raises NotHere."""
        spec = self._spec
        self._laid_out, self._shown_at = manifest["laid_out"], manifest["directory"]
        self._not_held = image.not_held(manifest)
        try:
            world.show(spec.directory, self._shown_at)
            if manifest.get("temporary") is not None and spec.temporary:
                self._temporary = spec.temporary
                there = os.path.join(self._shown_at, os.path.basename(spec.temporary))
                self._shown = world.short_path(there, self._is_in_world)
        except OSError as error:
            raise NotHere(f"{self._shown_at} cannot be where it was: {error.strerror}") from None

    def bring_back(self, path: str, ends: Mapping[str, int], manifest: Mapping[str, Any]) -> int:
        """Begin to restore the image at `path`, which is expected; the child's process id."""
        spec, memory = self._spec, self.memory
        assert memory is not None

        def work(tell: Tell) -> Message:
            enter_cgroup(spec.cgroup_work)
            image.bring_back(spec.criu, path, ends, spec.cwd, memory, self._temporary)

        pid = self._begin(work, lambda: world.fork(manifest.get("clocks")))
        self._until = self._asked_at + image.LIMIT_SECONDS
        return pid

    def _begin(self, work: Callable[[Tell], Message], fork: Callable[[], int] = os.fork) -> int:
        self._asked_at = boottime()
        self._child = WorkingChild(work, fork)
        return self._child.pid

    def words(self) -> list[Message]:
        """What the child has said since the last look."""
        if self._child is None:
            return []
        said = self._child.words()
        for word in said:
            self._not_held = word.get("dumped", self._not_held)
        if said:
            self.cost(boottime() - self._asked_at)
        return said

    def cost(self, seconds: float) -> None:
        """An image that was taken meanwhile has taken so much of the program's time."""
        self._rests_until = max(self._rests_until, boottime() + seconds / _SHARE)

    def ended(self, pid: int, status: int) -> list[Message] | None:
        """If the child was this process: its last words, or those that its exit status stands
        for."""
        child = self._child
        if child is None or child.pid != pid:
            return None
        said = self.words()
        is_late = boottime() >= self._until
        self._child, self._until = None, math.inf
        os.close(child.fd)
        deleted_files.forget_left(self._spec.checkpoints)  # it may have been killed before it could
        if child.has_ended:
            return said
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return [{"done": {}}]
        if is_late:
            why = image.LATE.format(image.LIMIT_SECONDS)
        elif code < 0:
            why = "what worked on it was killed"
        else:
            why = image.why_not(self.memory or "", code)
        return [*said, {"error": why, "broken": True}]

    def give_up(self) -> None:
        """Whatever it is that is being worked on is not wanted any more."""
        if self._child is not None:
            os.kill(self._child.pid, signal.SIGKILL)

    def deadline(self) -> float | None:
        """When a program has taken too long to come back, in boot-time seconds."""
        return None if math.isinf(self._until) else self._until

    def tick(self, now: float) -> None:
        """End what has taken too long."""
        if now >= self._until:
            self.give_up()


class Arrival:
    """A process that is about to be brought back: the new ends of its pipes, and the page."""

    def __init__(self, said: Message, output: Output, memory: str | None, rank: int = 0) -> None:
        self.cores: list[int] | None = None
        self.then_suspend: tuple[str, float, str] | None = None
        self._pid = int(said["pid"])
        self._root = int(said.get("root", self._pid))
        if not (0 < self._pid <= _LAST_PID and 0 < self._root <= _LAST_PID):
            raise ValueError("its process has a number that none can have")
        self.page = ControlPage.create(memory, rank)
        self.page.state = said["page"]
        ours, self._theirs = pipe_pair()
        ours.sendall(bytes.fromhex(said["to_agent"]))
        self._pipe, self._written = output.pipe()
        self._outside = Outside(self._theirs, self._written)
        self._channel = FrameConnection(ours, bytes.fromhex(said["from_agent"]))
        theirs = (self._theirs.reads, self._theirs.writes, self._written)
        self._ends = dict(zip(said["pipes"], theirs))
        #: Those that come with it, by their numbers.
        self.others: dict[int, Arrival] = {}

    @property
    def all(self) -> list[Arrival]:
        """It, and those that come with it."""
        return [self, *self.others.values()]

    @property
    def ends(self) -> dict[str, int]:
        """Of the pipes of all: what a process has in their places, by their names in the image."""
        return {name: fd for each in self.all for name, fd in each._ends.items()}

    def close_theirs(self) -> None:
        """The child that brings them back has them."""
        for each in self.all:
            each._theirs.close()
            os.close(each._written)

    def worker(self) -> Worker:
        """The process, now that it is there."""
        return Worker(self._pid, self._channel, self.page, self._pipe, self._outside, self._root)

    def close(self) -> None:
        """They do not come back."""
        for each in self.all:
            each._channel.close()
            each.page.close()
            each._outside.close()
            os.close(each._pipe)
