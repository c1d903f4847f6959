"""Removes what nodes keep for accounts of users who have left: the homes of throw-away accounts,
and environments.

Nothing of a user may be here: no trial, no process of the account, and nothing was begun for some
hours. A user who comes back has the same number, and gets both anew.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from hermesd.logs import get_logger
from hermesd.node import deep_trees
from hermesd.node.machine import processes
from hermesd.node.machine.accounts import Accounts
from hermesd.node.storage.trial_folder import TrialFolders

UNUSED_SECONDS = 6 * 3600.0
_LOOK_SECONDS = 1800.0

log = get_logger()


async def keep_removing(root: Path, folders: TrialFolders, accounts: Accounts) -> None:
    """See to that for as long as this task lives."""
    while accounts.switch:
        await asyncio.sleep(_LOOK_SECONDS)
        try:
            await remove(root, folders, accounts)
        except OSError as error:  # a full disk, for example: it is tried again
            log.warning("homes of users who are gone were not removed", why=str(error))


async def remove(root: Path, folders: TrialFolders, accounts: Accounts) -> None:
    """Remove what may go now from `root`. Raises OSError."""
    await _remove_leftovers(root)  # else one of them could be in the way
    there = await asyncio.to_thread(_of_nobody, root, folders)
    for path in there:
        aside = path.with_name(f"{deep_trees.PARTIAL}{path.name}")
        # Programs begin on this loop, too: either it is in use by now, or is made anew for them.
        if accounts.unused_seconds(int(path.name)) >= UNUSED_SECONDS:
            os.rename(path, aside)
            log.info("removed, as nothing of its user is here", path=str(path))
    await _remove_leftovers(root)


async def _remove_leftovers(root: Path) -> None:
    """Remove what was moved aside, also by a daemon that ended before it had removed it."""
    for place in _places(root):
        for left in place.glob(f"{deep_trees.PARTIAL}*"):
            if left.name.removeprefix(deep_trees.PARTIAL).isdigit():
                await asyncio.to_thread(deep_trees.remove, left)


def _places(root: Path) -> tuple[Path, Path]:
    return root / "homes", root / "venvs"


def _of_nobody(root: Path, folders: TrialFolders) -> list[Path]:
    """What belongs to accounts that have no trial here, and no process."""
    found = [path for place in _places(root) for path in place.glob("*") if path.name.isdigit()]
    if not found:
        return []
    used = {folder.uid for folder in folders.all()} | processes.accounts()
    return [path for path in found if int(path.name) not in used]
