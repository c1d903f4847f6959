"""The accounts of this machine: the name of an id, and who should have run what was not
permitted."""

from __future__ import annotations

import getpass
import os
import pwd
import stat
from pathlib import Path


def account(number: int) -> str:
    """The name of a user id, or the id where it has none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def current_user() -> str:
    """Who runs this process, by the environment, else the name of its account, or the id where it
    has none, as in containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def close(path: Path, passable: bool = False) -> None:
    """Have a file or directory of this account be closed to others, who may pass through what is
    `passable`. What is another's is not ours to close, nor a directory for all, such as /tmp.
    """
    found = path.lstat()
    is_for_all = bool(found.st_mode & stat.S_ISVTX)
    if found.st_uid != os.geteuid() or is_for_all or stat.S_ISLNK(found.st_mode):
        return
    mode = stat.S_IMODE(found.st_mode)
    wanted = mode & ~0o066 | 0o011 if passable else mode & ~0o077
    if wanted != mode:
        path.chmod(wanted)


def not_permitted(error: PermissionError) -> str:
    """What the system refused, for people: which file, to which account, and whose it is."""
    if not isinstance(error.filename, str | bytes):
        return str(error)
    path, ours = Path(os.fsdecode(error.filename)).absolute(), os.geteuid()
    said = f"{path}: {error.strerror} for {account(ours)}"
    for there in (path, *path.parents):
        try:
            owner = there.lstat().st_uid
        except OSError:
            continue
        if owner == ours:
            return said
        run = f"run this as that user (sudo -u {account(owner)})"
        return f"{said}; {there} belongs to {account(owner)}: {run}"
    return said
