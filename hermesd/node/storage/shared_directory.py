"""Copies of checkpoints in a directory that several nodes see, instead of copies on each other.

A copy exists once it is complete: written under another name, verified, renamed. A file in the
directory identifies it, and the directory is used only while that file can be read: if another disk
is mounted, or none, nothing is found and nothing is written.

Where programs run as their users, the directory belongs to the daemons and is closed to everybody
else, while a trial's own files are read and written with its user's rights.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Collection
from pathlib import Path

from hermesd.core.model import Checkpoint, TrialId
from hermesd.node import deep_trees
from hermesd.node.machine.accounts import owned
from hermesd.node.storage import checkpoints
from hermesd.node.storage.checkpoints import DamagedCheckpoint

MARK = "hermes-shared"


class SharedAway(Exception):
    """The shared directory cannot be used now; says why."""


class Shared:
    """The directory at `root`. Everything here blocks."""

    def __init__(self, root: Path, node: str, apart: bool = False) -> None:
        """`apart`: programs run as others than the daemon. Raises SharedAway."""
        self._root = root
        self._node = node
        try:
            #: What tells it from all others.
            self.name = _marked(root)
            if apart:
                _close(root)
        except OSError as error:
            raise SharedAway(_words(root, error)) from None
        self.fact = f"copies of checkpoints lie in {root}, for all nodes that have it as shared_dir"

    def see(self) -> None:
        """See that the directory is there. Raises SharedAway."""
        try:
            found = (self._root / MARK).read_text()
        except OSError as error:
            raise SharedAway(_words(self._root, error)) from None
        if found != self.name:
            raise SharedAway(f"shared_dir = {self._root} is another directory than it was")

    def put(self, path: Path, trial: TrialId, identity: str, keep: Collection[str]) -> None:
        """Have a copy of the checkpoint at `path` there, and of the trial's others only those that
        are named. Raises SharedAway, DamagedCheckpoint, OSError."""
        self.see()
        folder, home = self._folder(trial, identity), path.parents[1]
        if not _is_whole(folder / path.name):
            partial = folder / f"{path.name}.{self._node}.partial"
            deep_trees.remove(partial)
            for above in (folder.parents[1], folder.parent, folder):
                above.mkdir(mode=0o700, exist_ok=True)
            checkpoints.copy(path, home, partial, self._root)
            checkpoints.verified(partial)
            with contextlib.suppress(FileExistsError):
                os.rename(partial, folder / path.name)
        checkpoints.retain(folder, {*keep, path.name})

    def take(self, checkpoint: Checkpoint, identity: str, folder: Path) -> bool:
        """Bring the checkpoint below `folder`; False if it is not there. Raises SharedAway,
        OSError."""
        self.see()
        name = checkpoint.id.rpartition("@")[2]
        path = self._folder(checkpoint.trial, identity) / name
        if not identity or not _is_whole(path):
            return False
        partial, home = folder / f"{name}.shared.partial", folder.parent
        owned(home, deep_trees.remove, partial)
        try:
            checkpoints.copy(path, self._root, partial, home)
            found = owned(home, checkpoints.verified, partial)
        except DamagedCheckpoint as error:
            owned(home, deep_trees.remove, partial)
            raise SharedAway(str(error)) from None
        if checkpoint.sha256 and found.sha256 != checkpoint.sha256:
            owned(home, deep_trees.remove, partial)
            raise SharedAway(f"{path} is {found.sha256}, the head knows {checkpoint.sha256}")
        owned(home, os.rename, partial, folder / name)
        return True

    def where(self, trial: TrialId, identity: str, checkpoint: str) -> Path:
        """The directory of a checkpoint, which is the daemon's. Raises FileNotFoundError."""
        path = self._folder(trial, identity) / checkpoint.rpartition("@")[2]
        if not identity.isalnum() or not _is_whole(path):
            raise FileNotFoundError(2, "no such checkpoint", checkpoint)
        return path

    def forget(self, trial: TrialId, identity: str) -> None:
        """Remove everything of the trial of this study, if the directory is there."""
        if identity:
            folder = self._folder(trial, identity)
            deep_trees.remove(folder)
            for empty in (folder.parent, folder.parent.parent):
                with contextlib.suppress(OSError):
                    empty.rmdir()

    def _folder(self, trial: TrialId, identity: str) -> Path:
        return self._root / identity / trial


def _is_whole(path: Path) -> bool:
    return (path / checkpoints.MANIFEST).exists()


def _marked(root: Path) -> str:
    """The name in the directory's mark, which is made by whoever comes first."""
    mark = root / MARK
    if not mark.exists():
        own = root / f".{MARK}.{secrets.token_hex(8)}"
        own.write_text(secrets.token_hex(16))
        try:
            os.link(own, mark)
        except FileExistsError:
            pass  # another node was first
        finally:
            own.unlink()
    if not os.access(root, os.W_OK | os.X_OK):
        raise PermissionError(13, "it may not be written", str(root))
    return mark.read_text()


def _close(root: Path) -> None:
    """See that nobody else can put anything there, nor look into what is there. Raises OSError."""
    status = root.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(13, "it must be the daemon's, and writable by nobody else", str(root))
    for study in root.iterdir():
        if study.is_dir() and not study.is_symlink():
            study.chmod(0o700)


def _words(root: Path, error: OSError) -> str:
    return f"shared_dir = {root}: {error.strerror}"
