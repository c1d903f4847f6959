"""The heads on other machines that this user has logged in to; one of them is the current one.

Each has a folder of its own with a key and a certificate, which only this user may read.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hermesctl.errors import NotFound, UsageError
from hermesctl.text import nearest, printable
from hermesd.expecting import StateAway, StateRefused
from hermesd.security.accounts import not_permitted
from hermesd.security.enrollment import Membership, enroll, write_private
from hermesd.security.identity import NotEnrolled


@dataclass(frozen=True, slots=True)
class Context:
    """A head by the name that it has here."""

    name: str
    membership: Membership

    @property
    def head(self) -> str:
        """HOST:PORT of the head. Raises UsageError for a login that is damaged."""
        with reading_login():
            return self.membership.head

    @property
    def user(self) -> str:
        """Who this is to the head. Raises UsageError for a login that is damaged."""
        with reading_login():
            return self.membership.identity.name


@contextmanager
def reading_login() -> Iterator[None]:
    """Read what lies in the folder of a login. Raises UsageError where that is not to be had."""
    try:
        yield
    except PermissionError as error:
        raise UsageError(printable(not_permitted(error))) from None
    except (StateRefused, StateAway) as error:
        raise UsageError(printable(str(error))) from None


def contexts(environment: Mapping[str, str]) -> list[Context]:
    """All of them, by name."""
    folder = _folder(environment)
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    known = [Context(path.name, Membership(path)) for path in found if path.is_dir()]
    return [context for context in known if context.membership.exists]


def find(environment: Mapping[str, str], name: str) -> Context | None:
    """The one of this name, if there is one."""
    return next((one for one in contexts(environment) if one.name == name), None)


def context(environment: Mapping[str, str], name: str) -> Context:
    """The one of this name. Raises NotFound."""
    found = find(environment, name)
    if found is None:
        known = [one.name for one in contexts(environment)]
        near = nearest(name, known)
        there = f"; those that you are logged in to: {', '.join(known)}" if known else ""
        hint = f"; did you mean {near}?" if near else there
        raise NotFound(f"there is no context {printable(name)}{hint}")
    return found


def current(environment: Mapping[str, str]) -> Context | None:
    """The one that counts where no head is named."""
    try:
        name = _mark(environment).read_text().strip()
    except OSError:
        return None
    return find(environment, name)


def use(environment: Mapping[str, str], name: str | None) -> None:
    """Make it the current one; None for this machine's own head. Raises NotFound."""
    if name is None:
        _mark(environment).unlink(missing_ok=True)
    else:
        write_private(_mark(environment), context(environment, name).name.encode())


def login(environment: Mapping[str, str], head: str, token: str, name: str, user: str) -> Context:
    """Redeem an invitation to the head at HOST:PORT, and make it the current context.

    Raises UsageError when that fails.
    """
    if not name or not all(c.isalnum() or c in "._-" for c in name) or name.startswith("."):
        raise UsageError(f"--name: {printable(name)!r}: expected letters, digits, ., _ and -")
    try:
        membership = enroll(head, token, user, _folder(environment) / name, machine=False)
    except NotEnrolled as error:
        raise UsageError(printable(str(error))) from None
    use(environment, name)
    return Context(name, membership)


def logout(environment: Mapping[str, str], name: str) -> None:
    """Forget a context, with its key. Raises NotFound."""
    gone = context(environment, name)
    was = current(environment)
    if was is not None and was.name == gone.name:
        use(environment, None)
    shutil.rmtree(gone.membership.folder)


def _folder(environment: Mapping[str, str]) -> Path:
    home = environment.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home) / "hermes" / "contexts"


def _mark(environment: Mapping[str, str]) -> Path:
    return _folder(environment).with_name("current-context")
