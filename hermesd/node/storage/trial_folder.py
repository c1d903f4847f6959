"""A trial's directory on this node, and the journal of its runs.

A run is journalled, fsynced, before anything of it is started. `run.pb` holds the Launch
of the newest attempt until the head has its outcome safe; then it becomes `last.pb`, and still
tells which attempt was the newest. A journal that cannot be read is set aside, never removed.
`identity` tells which study all this is of: a name may be given again by another head.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from hermesd import wire
from hermesd.codec import Malformed
from hermesd.core.model import TrialId
from hermesd.core.node.messages import Assignment
from hermesd.node import deep_trees
from hermesd.node.frames import Frame
from hermesd.pb.hermes.v1 import node_pb2 as pb

_TRIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[0-9]+")
_TERMINAL = frozenset({"suspended", "completed", "failed"})


class BadTrial(Exception):
    """The id of a trial cannot be a directory's path."""


class UnreadableFolder(Exception):
    """The journal of a run is damaged; names the file."""


class TrialFolder:
    """Where everything of one trial lies. `sockets` is a directory with a short path."""

    def __init__(self, trials: Path, sockets: Path, trial: TrialId) -> None:
        if not _TRIAL.fullmatch(trial):
            raise BadTrial(f"trial {trial!r}: expected a plain name, a slash and a number")
        self.trial = trial
        self.path = trials / trial
        self.work = self.path / "work"
        # Files of the working copy that outlive it.
        self.keep = self.path / "keep"
        self.checkpoints = self.path / "checkpoints"
        self.output = self.path / "output.log"
        self.spec = self.path / "spec.json"
        self.host_log = self.path / "host.log"
        # A Unix socket's path has at most 107 bytes, and a study's name may be long.
        digest = hashlib.sha256(str(self.path).encode()).hexdigest()[:16]
        self.socket = sockets / f"{digest}.sock"
        self.cgroup = trial.replace("/", "@")

    # The journal.

    def begin(self, assignment: Assignment) -> None:
        """Journal a run that is not parked, durably. Raises OSError, naming the file."""
        self.belong_to(assignment.identity)
        self._store("run.pb", wire.launch_to_proto(assignment).SerializeToString())
        self.parked = self.rebuilt = False

    def belong_to(self, identity: str) -> None:
        """Be of this study from now on. Raises OSError, naming the file.

        What lies here of another study that bore this name goes first: nothing of it may be taken
        for a checkpoint or an outcome of this one.
        """
        if self.identity != identity:
            deep_trees.remove(self.path)
            if self.path.exists():
                raise OSError(errno.ENOTEMPTY, "it cannot be removed", str(self.path))
            self._store("identity", identity.encode())

    @property
    def identity(self) -> str:
        """Of the study that all this is of; empty if none was said."""
        try:
            return (self.path / "identity").read_text()
        except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
            return ""

    def _store(self, name: str, body: bytes) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        partial = (self.path / name).with_suffix(".partial")
        with _named(partial), open(partial, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        os.rename(partial, self.path / name)
        _fsync(self.path)

    def settle(self) -> None:
        """The head has the outcome of the newest run safe, and no process is left."""
        if (self.path / "run.pb").exists():
            os.rename(self.path / "run.pb", self.path / "last.pb")
        self.rebuilt = False

    def journalled(self) -> Assignment | None:
        """The run whose outcome the head may not have; None without one. Raises UnreadableFolder,
        OSError."""
        return self._read("run.pb")

    def last(self) -> Assignment | None:
        """The newest run ever journalled here. Raises UnreadableFolder, OSError."""
        return self._read("run.pb") or self._read("last.pb")

    def _read(self, name: str) -> Assignment | None:
        path = self.path / name
        try:
            found = wire.launch_from_proto(pb.Launch.FromString(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (IsADirectoryError, DecodeError, Malformed) as error:
            raise UnreadableFolder(f"{path}: {error}") from None
        if found.run.trial != self.trial:
            raise UnreadableFolder(f"{path}: it speaks of {found.run}")
        return found

    def set_aside(self) -> list[Path]:
        """Rename what is read of the journal and makes no sense, for people to look at; the new
        names. Raises OSError for what the disk does not let us read: that may be whole."""
        renamed = []
        for name in ("run.pb", "last.pb"):
            try:
                self._read(name)
            except UnreadableFolder:
                kept = self.path / f"{name}.damaged"
                os.replace(self.path / name, kept)
                renamed.append(kept)
        return renamed

    @property
    def parked(self) -> bool:
        """Whether the newest run was parked when it was last heard of."""
        return (self.path / "parked").exists()

    @parked.setter
    def parked(self, is_parked: bool) -> None:
        self._mark("parked", is_parked)

    @property
    def rebuilt(self) -> bool:
        """Whether there may be a process that was rebuilt before a run asked for it."""
        return (self.path / "rebuilt").exists()

    @rebuilt.setter
    def rebuilt(self, is_rebuilt: bool) -> None:
        self._mark("rebuilt", is_rebuilt)

    def _mark(self, name: str, is_so: bool) -> None:
        if is_so:
            (self.path / name).touch()
        else:
            (self.path / name).unlink(missing_ok=True)

    def outcome(self, attempt: int) -> Frame | None:
        """What the host wrote down of the end of this attempt, for want of a host to ask."""
        last = self.last_words(attempt)[-1:]
        return last[0] if last and last[0]["kind"] in _TERMINAL else None

    def last_words(self, attempt: int) -> list[Frame]:
        """What the host wrote down of this attempt: its reports, then its outcome if it has one.
        Raises OSError."""
        written = [event for event in self._written() if event.get("attempt") == attempt]
        outcomes = [event for event in written if event.get("kind") in _TERMINAL]
        return [event for event in written if event.get("kind") == "reported"] + outcomes[-1:]

    def backed_checkpoints(self) -> set[str]:
        """The directories of the checkpoints whose reports the hosts of the trial wrote down.

        What goes on from another one would leave a gap in the curve: its process saved it when
        its host was dead already.
        """
        return {str(event.get("id")) for event in self._written() if event.get("kind") == "saving"}

    def _written(self) -> Iterator[Frame]:
        """What the hosts of the trial wrote down, oldest first."""
        try:
            lines = (self.path / "events.jsonl").read_bytes().splitlines()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return
        for line in lines:
            with suppress(ValueError, RecursionError):  # the last line, torn by a crash
                if isinstance(event := json.loads(line), dict):
                    yield event

    # Files.

    def write_spec(self, fields: Mapping[str, Any]) -> None:
        """What the host is told."""
        partial = self.path / "spec.partial"
        mode = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with _named(partial), open(os.open(partial, mode, 0o600), "w") as file:
            json.dump(fields, file)
        os.rename(partial, self.spec)

    def forget(self) -> None:
        """Remove everything of the trial."""
        deep_trees.remove(self.path)
        self.socket.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class TrialFolders:
    """The directories of all trials, below `trials`; their sockets are in `sockets`."""

    trials: Path
    sockets: Path

    def of(self, trial: TrialId) -> TrialFolder:
        """Where a trial's files are. Raises BadTrial."""
        return TrialFolder(self.trials, self.sockets, trial)

    def all(self) -> Iterator[TrialFolder]:
        """Those that are there; whatever else lies there is passed over."""
        for path in sorted(self.trials.glob("*/*")):
            with suppress(BadTrial):
                yield self.of(f"{path.parent.name}/{path.name}")

    def journalled(self) -> Iterator[TrialFolder]:
        """Those with a run whose outcome the head may not have."""
        return (each for each in self.all() if os.path.lexists(each.path / "run.pb"))

    def rebuilt(self) -> Iterator[TrialFolder]:
        """Those with a process that no run has asked for."""
        return (each for each in self.all() if each.rebuilt)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Name the file in what the system says of a write or a sync, as it does of an open."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, error.filename or str(path)) from None


def _fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
