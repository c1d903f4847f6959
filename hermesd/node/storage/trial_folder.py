"""A trial's directory on this node, and the journal of its runs.

A run is journaled, with fsync, before anything of it is started. `run.pb` holds the Launch of the
newest attempt until the head has its outcome safe; then it becomes `last.pb`, which still tells
which attempt was the newest. A journal that cannot be read is set aside, never removed. `identity`
tells which study all of this belongs to, since another head may give its name again.

The journal is beside the trials' directories and belongs to the daemon alone. The directory itself
belongs to the account of the trial's program, which may have put anything there, so the daemon
works in it with the rights of that account.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ParamSpec, TypeVar

from google.protobuf.message import DecodeError

from hermesd import wire
from hermesd.codec import Malformed
from hermesd.core.model import TrialId
from hermesd.core.node.messages import Assignment
from hermesd.node import deep_trees
from hermesd.node.frames import Frame
from hermesd.node.machine import accounts
from hermesd.node.machine.accounts import PASSABLE, UnixAccount, own
from hermesd.node.storage import checkpoints
from hermesd.pb.hermes.v1 import node_pb2 as pb

_TRIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[0-9]+")
_TERMINAL = frozenset({"suspended", "completed", "failed"})
_JOURNAL = ("identity", "run.pb", "last.pb", "parked", "rebuilt")

# A host lets its file come to no more than this, and none of its lines.
WRITTEN_BYTES, LINE_BYTES = 32 << 20, 128 << 10
# What it reports is written in batches of a thousand at most, of some hundred bytes each.
REPORTS_MAX = 50_000

# No study's directory goes while one of a trial is made in it.
_STUDIES = threading.Lock()

_P = ParamSpec("_P")
_R = TypeVar("_R")


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
        self.journal = trials.with_name("runs") / trial
        self._sockets = sockets
        self.work = self.path / "work"
        # Its program's TMPDIR, where it may have one of its own.
        self.temporary = self.path / "tmp"
        # Files of the working copy that outlive it.
        self.keep = self.path / "keep"
        self.checkpoints = self.path / "checkpoints"
        self.output = self.path / "output.log"
        self.spec = self.path / "spec.json"
        self.host_log = self.path / "host.log"
        self.cgroup = trial.replace("/", "@")

    def output_of(self, rank: int) -> Path:
        """What one of its processes printed, if it has one for each device."""
        return self.output.with_name(f"{self.output.name}.rank{rank}") if rank else self.output

    # Whose it is.

    @property
    def uid(self) -> int:
        """As whom its program runs; the daemon's own while there is nothing of it."""
        return accounts.owner_of(self.path)

    @property
    def socket(self) -> Path:
        """Where its host is asked."""
        # A Unix socket's path has at most 107 bytes, and a study's name may be long.
        digest = hashlib.sha256(str(self.path).encode()).hexdigest()[:16]
        return accounts.sockets_of(self._sockets, self.uid) / f"{digest}.sock"

    def as_owner(self, work: Callable[_P, _R], /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Do a piece of work on the trial's files as its program's account may."""
        with accounts.as_owner(self.path):
            return work(*args, **kwargs)

    def begin_from(self, parent: TrialFolder, name: str) -> None:
        """Have a checkpoint of another trial: its files, or where that one's program is another
        account's, copies of them. Raises DamagedCheckpoint, for an image of processes as well whose
        memory is another account's; OSError."""
        theirs, mine = parent.checkpoints / name, self.checkpoints / name
        if parent.uid == self.uid:
            self.as_owner(checkpoints.fork, theirs, mine)
            return
        if self.as_owner((mine / checkpoints.MANIFEST).exists):
            return
        partial = mine.with_suffix(".partial")
        self.as_owner(deep_trees.remove, partial)
        if parent.as_owner(checkpoints.verified, theirs).is_image:
            raise checkpoints.DamagedCheckpoint(f"{theirs}: an image of one account alone")
        checkpoints.copy(theirs, parent.path, partial, self.path)
        self.as_owner(checkpoints.verified, partial)
        self.as_owner(partial.rename, mine)

    def _be_of(self, account: UnixAccount) -> None:
        """Have the directory of the trial be this account's."""
        with _STUDIES:
            _made(self.path.parent)
            account.make_folder(self.path)
        if self.uid == os.geteuid() != account.uid:
            _give(self.path, account)
        if self.uid != account.uid:
            raise PermissionError(errno.EPERM, f"it is not {account.name}'s", str(self.path))
        if not account.is_own:
            account.make_folder(self.socket.parent)

    # The journal.

    def begin(self, assignment: Assignment, account: UnixAccount | None = None) -> None:
        """Journal a run that is not parked, durably. Raises OSError, naming the file."""
        self.belong_to(assignment.identity, account)
        self._store("run.pb", wire.launch_to_proto(assignment).SerializeToString())
        self.parked = self.rebuilt = False

    def belong_to(self, identity: str, account: UnixAccount | None = None) -> None:
        """Be of this study from now on, and its program this account's, by default the daemon's.
        Raises OSError, naming the file.

        What lies here of another study that bore this name goes first: nothing of it may be taken
        for a checkpoint or an outcome of this one.
        """
        if self.identity != identity:
            self._remove()
            if self.path.exists() or self.journal.exists():
                raise OSError(errno.ENOTEMPTY, "it cannot be removed", str(self.path))
            self._store("identity", identity.encode())
        self._be_of(account or own())

    @property
    def identity(self) -> str:
        """Of the study that all this is of; empty if none was said."""
        try:
            return (self.journal / "identity").read_text()
        except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
            return ""

    def _store(self, name: str, body: bytes) -> None:
        with _STUDIES:
            self.journal.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = (self.journal / name).with_suffix(".partial")
        with _named(partial), _private(partial, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        os.rename(partial, self.journal / name)
        _fsync(self.journal)

    def settle(self) -> None:
        """The head has the outcome of the newest run safe, and no process is left."""
        if (self.journal / "run.pb").exists():
            os.rename(self.journal / "run.pb", self.journal / "last.pb")
        self.rebuilt = False

    def journaled(self) -> Assignment | None:
        """The run whose outcome the head may not have; None without one. Raises UnreadableFolder,
        OSError."""
        return self._read("run.pb")

    def last(self) -> Assignment | None:
        """The newest run ever journaled here. Raises UnreadableFolder, OSError."""
        return self._read("run.pb") or self._read("last.pb")

    def _read(self, name: str) -> Assignment | None:
        path = self.journal / name
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
                kept = self.journal / f"{name}.damaged"
                os.replace(self.journal / name, kept)
                renamed.append(kept)
        return renamed

    @property
    def parked(self) -> bool:
        """Whether the newest run was parked when it was last heard of."""
        return (self.journal / "parked").exists()

    @parked.setter
    def parked(self, is_parked: bool) -> None:
        self._mark("parked", is_parked)

    @property
    def rebuilt(self) -> bool:
        """Whether there may be a process that was rebuilt before a run asked for it."""
        return (self.journal / "rebuilt").exists()

    @rebuilt.setter
    def rebuilt(self, is_rebuilt: bool) -> None:
        self._mark("rebuilt", is_rebuilt)

    def _mark(self, name: str, is_so: bool) -> None:
        if is_so:
            (self.journal / name).touch()
        else:
            (self.journal / name).unlink(missing_ok=True)

    def outcome(self, attempt: int) -> Frame | None:
        """What the host wrote down of the end of this attempt, the newest, for want of a host to
        ask: it is the last thing that a host does. Raises OSError."""
        found = None
        for _, event in self._written(2 * LINE_BYTES):
            if event.get("attempt") == attempt and event["kind"] in _TERMINAL:
                found = event
        return found

    def reports(self, attempt: int) -> Sequence[bytes]:
        """What the host wrote down of this attempt's reports, as it is written: read, all together
        could take twenty times the memory. Raises OSError."""
        newest: deque[bytes] = deque(maxlen=REPORTS_MAX)
        for line, event in self._written():
            if event.get("attempt") == attempt and event["kind"] == "reported":
                newest.append(line)
        return newest

    def backed_checkpoints(self) -> set[str]:
        """The directories of the checkpoints whose reports the hosts of the trial wrote down.

        What goes on from another one would leave a gap in the curve: its process saved it when
        its host was dead already.
        """
        said = (event for _, event in self._written())
        return {str(event.get("id")) for event in said if event["kind"] == "saving"}

    def _written(self, most_bytes: int | None = None) -> Iterator[tuple[bytes, Frame]]:
        """What the hosts of the trial wrote down, oldest first, as lines and what they say: of the
        last bytes of it, by default as many as a host lets it come to; a program may write more."""
        try:
            file = self.as_owner(accounts.regular, self.path / "events.jsonl")
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return
        with file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - (most_bytes or WRITTEN_BYTES)))
            while file.tell() < size and (line := file.readline(LINE_BYTES)):
                with suppress(ValueError, RecursionError):  # one that a crash has torn, for example
                    event = json.loads(line)
                    if isinstance(event, dict) and isinstance(event.get("kind"), str):
                        yield line, event

    # Files.

    def write_spec(self, fields: Mapping[str, Any]) -> None:
        """What the host is told."""
        partial = self.path / "spec.partial"
        with accounts.as_owner(self.path):
            # What a program has put in its place is not opened: that could take for ever.
            partial.unlink(missing_ok=True)
            with _named(partial), _private(partial, "w", os.O_EXCL) as file:
                json.dump(fields, file)
            os.rename(partial, self.spec)

    def forget(self) -> None:
        """Remove everything of the trial, and the directories of a study that has no other."""
        self.unlink_socket()
        self._remove()
        for study in (self.path.parent, self.journal.parent):
            with _STUDIES, suppress(OSError):  # there are others
                study.rmdir()

    def _remove(self) -> None:
        deep_trees.remove(self.path)
        deep_trees.remove(self.journal)

    def unlink_socket(self) -> None:
        """No host is to be asked there any more."""
        self.as_owner(self.socket.unlink, missing_ok=True)


@dataclass(frozen=True, slots=True)
class TrialFolders:
    """The directories of all trials."""

    #: They are below this one.
    trials: Path
    #: Where their sockets are.
    sockets: Path

    def of(self, trial: TrialId) -> TrialFolder:
        """Where a trial's files are. Raises BadTrial."""
        return TrialFolder(self.trials, self.sockets, trial)

    def all(self) -> Iterator[TrialFolder]:
        """Those that are there; whatever else lies there is passed over."""
        roots = (self.trials, self.trials.with_name("runs"))
        paths = (path for root in roots for path in root.glob("*/*"))
        for trial in sorted({f"{path.parent.name}/{path.name}" for path in paths}):
            with suppress(BadTrial):
                yield self.of(trial)

    def take_over(self) -> None:
        """Have the journals where they belong that lie in the directories of trials, as they did
        once; what a program may have put there as another account is none."""
        for folder in self.all():
            for name in _JOURNAL if folder.uid == os.geteuid() else ():
                old = folder.path / name
                if old.is_file() and not os.path.lexists(folder.journal / name):
                    folder.journal.mkdir(parents=True, exist_ok=True, mode=0o700)
                    os.rename(old, folder.journal / name)

    def journaled(self) -> Iterator[TrialFolder]:
        """Those with a run whose outcome the head may not have."""
        return (each for each in self.all() if os.path.lexists(each.journal / "run.pb"))

    def rebuilt(self) -> Iterator[TrialFolder]:
        """Those with a process that no run has asked for."""
        return (each for each in self.all() if each.rebuilt)


def _made(study: Path) -> None:
    """Have the directory of a study's trials: others pass through it to theirs."""
    study.parent.mkdir(parents=True, exist_ok=True, mode=PASSABLE)
    study.mkdir(exist_ok=True, mode=PASSABLE)
    os.chmod(study, PASSABLE)


def _give(path: Path, account: UnixAccount) -> None:
    """Have all that lies there, which was the daemon's, be the account's; links as such."""
    for _, folders, files, fd in os.fwalk(path):
        for name in (".", *folders, *files):
            os.chown(name, account.uid, account.gid, dir_fd=fd, follow_symlinks=False)


def _private(path: Path, mode: str, flags: int = os.O_TRUNC) -> IO[Any]:
    flags |= os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    return open(os.open(path, flags, 0o600), mode)


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
