"""The head's state directory: one head at a time, on a disk whose locks can be trusted."""

from __future__ import annotations

import ctypes
import fcntl
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hermesd.expecting import StateAway, StateRefused, expecting
from hermesd.security.accounts import close

__all__ = [
    "NETWORK",
    "DamagedState",
    "StateAway",
    "StateBusy",
    "StateRefused",
    "expecting",
    "filesystem_magic",
    "owned",
    "seconds",
]

# What lies in it: keys, tokens, people's code and results.
_SECRET = (
    "authority",
    "authority/*",
    "blobs",
    "journal*",
    "*token*",
    "invitations.json",
    "backups",
)

# statfs(2) magic numbers of file systems that other machines write to as well.
NETWORK = {
    0x6969: "NFS",
    0x517B: "SMB",
    0xFE534D42: "SMB",
    0xFF534D42: "CIFS",
    0x00C36400: "Ceph",
    0x0BD00BD0: "Lustre",
    0x19830326: "BeeGFS",
    0x47504653: "GPFS",
    0x5346414F: "AFS",
    0x7461636F: "OCFS2",
    0x01161970: "GFS2",
}


class DamagedState(StateRefused):
    """A file of the state is not as it was written. `what` is wrong with it, without its name."""

    def __init__(self, path: Path, what: str, advice: str) -> None:
        super().__init__(f"{path} {what}: {advice}")
        self.what = what


class StateBusy(StateRefused):
    """Another head has it."""


def seconds(path: Path) -> float:
    """The seconds in a file. Raises ValueError for what is no such number, OSError."""
    number = float(path.read_text(encoding="ascii"))
    if not 0 <= number < float("inf"):
        raise ValueError(number)
    return number


def filesystem_magic(path: Path) -> int:
    """The file system's number, from statfs(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(512)
    if libc.statfs(os.fsencode(path), buffer) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno), str(path))
    word = buffer.raw[: ctypes.sizeof(ctypes.c_long)]
    return int.from_bytes(word, sys.byteorder) & 0xFFFFFFFF


def _close(state: Path) -> None:
    """Have the journal, keys, tokens and code be this account's alone, whoever made the directory.
    Its group may pass through it: the socket may be in it."""
    found = state.stat()
    if found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX:
        state.chmod(stat.S_IMODE(found.st_mode) & ~0o027)
    for path in (path for pattern in _SECRET for path in state.glob(pattern)):
        if path.is_dir() or path.is_file():
            close(path)


@contextmanager
def owned(
    path: Path, magic: Callable[[Path], int] = filesystem_magic, called: str = ""
) -> Iterator[None]:
    """Own the directory, made if it is not there, until the end of the block. `called` is how it
    came to be named, if by a setting.

    Raises StateRefused on a network file system, StateBusy while another head owns it.
    """
    remedy = "move away what is there, or set head.state_dir"
    with expecting(path, "a directory", remedy, called=called):
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    _close(path)
    if kind := NETWORK.get(magic(path)):
        raise StateRefused(
            f"{path} is on {kind}: the journal needs a local disk (set head.state_dir)"
        )
    with expecting(path / "head.lock", "a file", "remove it, while no head runs"):
        lock = os.open(path / "head.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
            raise StateBusy(f"another head (pid {holder}) uses {path}") from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(lock)
