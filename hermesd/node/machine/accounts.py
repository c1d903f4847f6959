"""As which accounts the programs of a node's users run, and how their files are used.

All programs of a user run as one account: the one named for them, the one with their name, or one
number of a range, which is then theirs on this node for good. None of these is root's or the
daemon's. The daemon uses files in a user's folders with that user's rights, never as root, since
users can put anything in the place of a file, such as a link to somebody else's.
"""

from __future__ import annotations

import ctypes
import json
import os
import pwd
import socket
import stat
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from hermesd.config.schema import NodeConfig
from hermesd.expecting import StateRefused
from hermesd.node.clock import boottime
from hermesd.node.reasons import Foreseen

# Below it are those of the system's own services: one of them must be named for a user.
PEOPLES_UID = 1000
PRIVATE, PASSABLE = 0o700, 0o711

_P = ParamSpec("_P")
_R = TypeVar("_R")


class NoAccount(Foreseen):
    """A user has no account that their programs could run as here; says why."""


@dataclass(frozen=True, slots=True)
class UnixAccount:
    """Who a program runs as: numbers as the system has them, and a home that may be written."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: Path

    @property
    def is_own(self) -> bool:
        """Whether it is the daemon's."""
        return self.uid == os.geteuid()

    def make_folder(self, path: Path) -> None:
        """Have a folder of the account's own in one that is the daemon's. Raises OSError."""
        if not path.is_dir():
            path.mkdir(mode=PRIVATE)
            if not self.is_own:
                os.chown(path, self.uid, self.gid, follow_symlinks=False)


def own() -> UnixAccount:
    """The daemon's."""
    uid = os.geteuid()
    return UnixAccount(_name(uid), uid, os.getegid(), (), Path.home())


class Accounts:
    """The accounts of a node's users, by what its settings say."""

    def __init__(self, config: NodeConfig) -> None:
        """Raises StateRefused where programs are to run as others and cannot."""
        self._config = config
        self._own = own()
        self._range = config.uid_range
        self._file = config.state_dir / "accounts.json"
        self._numbers: dict[str, int] = {}
        self._began = boottime()
        self._used: dict[int, float] = {}
        if not self.switch:
            return
        if self._own.uid != 0:
            raise StateRefused(
                f'{config.told("run_as")}: expected "self", since only root can run programs as'
                f" others and this daemon runs as {self._own.name}"
            )
        if self._file.exists():
            self._numbers = json.loads(self._file.read_text())

    @property
    def switch(self) -> bool:
        """Whether programs run as others than the daemon."""
        return self._config.runs_as != "self"

    @property
    def numbers(self) -> Mapping[str, int]:
        """The throw-away accounts that users have here, by user."""
        return self._numbers

    @property
    def fact(self) -> str:
        """For people."""
        if not self.switch:
            return (
                f"programs run as the node's own account, {self._own.name}: they can read what is"
                " the node's, and each other's files"
            )
        if self._range is None:
            return "programs run as the account of their user's name"
        return f"programs run as throw-away accounts, one for each user, of {self._config.runs_as}"

    @property
    def probe(self) -> UnixAccount:
        """One that no user has, to try things out as."""
        if not self.switch:
            return self._own
        uid = self._range[0] if self._range else 65534
        return UnixAccount("nobody", uid, uid, (), Path("/"))

    def closed_to_programs(self, path: Path) -> Path | None:
        """What keeps the accounts of programs from a path: it, or a directory on the way to it."""
        for there in (*reversed(path.parents), path):
            with _files_as(self.probe.uid, self.probe.gid):
                try:
                    there.stat()
                except PermissionError:
                    return there.parent
        return None

    def of(self, user: str) -> UnixAccount:
        """As whom the programs of a user run. Raises NoAccount, OSError."""
        if not self.switch:
            return self._own
        account = self._found(user)
        self._used[account.uid] = boottime()
        return account

    def unused_seconds(self, uid: int) -> float:
        """For how long nobody has asked for this account."""
        return boottime() - self._used.get(uid, self._began)

    def _found(self, user: str) -> UnixAccount:
        if not user:
            raise NoAccount("the head does not say whose program it is: it is older than this node")
        terms = self._config.users.get(user)
        name = terms.account if terms else None
        if name is None and self._range is not None:
            return self._of_range(user, self._range)
        try:
            entry = pwd.getpwnam(name or user)
        except (KeyError, ValueError):
            raise NoAccount(
                f'there is no account {name or user}: add it, or set account in [users."{user}"]'
            ) from None
        if entry.pw_uid == 0 or (name is None and entry.pw_uid < PEOPLES_UID):
            raise NoAccount(f"the account {entry.pw_name} is the system's: no user's programs run")
        groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
        return UnixAccount(
            entry.pw_name, entry.pw_uid, entry.pw_gid,
            tuple(group for group in groups if group), Path(entry.pw_dir),
        )  # fmt: skip

    def _of_range(self, user: str, numbers: tuple[int, int]) -> UnixAccount:
        """The one that the user has had here before, or the next that nobody has had."""
        uid = self._numbers.get(user)
        if uid is None or not numbers[0] < uid <= numbers[1]:
            # The first is nobody's.
            uid = max([numbers[0], *self._numbers.values()]) + 1
            if uid > numbers[1]:
                raise NoAccount(f"{self._config.told('run_as')}: all of these are taken")
            self._numbers[user] = uid
            partial = self._file.with_suffix(".partial")
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump(self._numbers, file)
                file.flush()
                os.fsync(file.fileno())
            os.rename(partial, self._file)
        account = UnixAccount(
            f"hermes-{uid}", uid, uid, (), self._config.state_dir / "homes" / str(uid)
        )
        account.make_folder(account.home)
        return account


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def sockets_of(sockets: Path, uid: int) -> Path:
    """The folder of the sockets of hosts that run as this number."""
    return sockets if uid == os.geteuid() else sockets / str(uid)


def owner_of(folder: Path) -> int:
    """Whose a folder in one of the daemon's is; the daemon's own if it is not there yet."""
    try:
        return os.lstat(folder).st_uid
    except FileNotFoundError:
        return os.geteuid()


@contextmanager
def as_owner(folder: Path) -> Iterator[None]:
    """Use files in the block as who owns this folder may, which lies in one of the daemon's.

    Of this thread alone: nothing is awaited in it. The system takes from it for as long all that
    root may do with others' files. Raises PermissionError where that is not to be had.
    """
    try:
        there = os.lstat(folder)
    except (FileNotFoundError, NotADirectoryError):
        yield
        return
    if os.geteuid() != 0 or there.st_uid == 0:
        yield
        return
    with _files_as(there.st_uid, there.st_gid):
        yield


@contextmanager
def _files_as(uid: int, gid: int) -> Iterator[None]:
    own_uid, own_gid = os.geteuid(), os.getegid()
    try:
        _use_files_as(uid, gid)
        yield
    finally:
        _use_files_as(own_uid, own_gid)


def owned(folder: Path, work: Callable[_P, _R], /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Do a piece of work on files as who owns this folder may."""
    with as_owner(folder):
        return work(*args, **kwargs)


_PLAIN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def regular(path: Path | str, flags: int = 0) -> BufferedReader:
    """A file of a program to read, and nothing else that the program may have put there: a pipe
    would be waited for, a terminal could become the daemon's. Raises OSError."""
    descriptor = os.open(path, _PLAIN | flags)
    # Before `open` sees a folder: it refuses one, but leaves the descriptor to its caller.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(2, "no file", str(path))
    return open(descriptor, "rb")


_CREDENTIALS = struct.Struct("iII")  # of a peer: process, user, group


def peer(stream: Any) -> tuple[int, int]:
    """The process and the user at the other end of a Unix socket, as they began to listen."""
    said = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(said)
    return int(pid), int(uid)


def connected(path: Path, uid: int) -> socket.socket | None:
    """A connection to who listens at the socket, if that is `uid`: a link in the place of one may
    lead to anybody's. None without such. Raises OSError."""
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stream.setblocking(False)
    is_it = False
    try:
        with as_owner(path.parent):
            # Through the directory's descriptor: a socket's path is limited to 107 bytes.
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                stream.connect(f"/proc/self/fd/{folder}/{path.name}")
            finally:
                os.close(folder)
        is_it = peer(stream)[1] == uid
    except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
        pass  # nobody listens yet, or any more, or to so many
    finally:
        if not is_it:
            stream.close()
    return stream if is_it else None


_LIBC = ctypes.CDLL(None)
_NONE = -1  # what sets nothing: the answer is what was set before


def _use_files_as(uid: int, gid: int) -> None:
    """For this thread: system calls of its own, unlike `seteuid`. (setfsuid(2))"""
    _LIBC.setfsgid(gid)
    _LIBC.setfsuid(uid)
    if (_LIBC.setfsuid(_NONE), _LIBC.setfsgid(_NONE)) != (uid, gid):
        raise PermissionError(1, f"files cannot be used as {uid}:{gid}")
