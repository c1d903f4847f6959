"""The environment variables of a trial's program: a clean base, the study's own, and its
device's."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from hermesd.core.node.messages import Work
from hermesd.node.machine.accounts import UnixAccount, own

# Says to which trial's directory a process belongs, or to which node's: it is found again by
# this when everybody who knew its number is dead.
OWNER = "HERMES_OWNER"
_TMPDIR = "TMPDIR"
# What any program may need to find its home, its language and the outside world.
_PASSED = frozenset(
    {
        "HOME",
        "LANG",
        "LANGUAGE",
        "LD_LIBRARY_PATH",
        "LOGNAME",
        "PATH",
        "SHELL",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        _TMPDIR,
        "TZ",
        "USER",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "XDG_CACHE_HOME",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
    }
)


# These say where the daemon's own account has its files, and who it is.
_ONES_OWN = frozenset({"HOME", "LOGNAME", "SHELL", _TMPDIR, "USER", "XDG_CACHE_HOME"})


def passed(mine: Mapping[str, str], *prefixes: str) -> dict[str, str]:
    """The clean base, out of the node daemon's own environment."""
    beginnings = ("LC_", *prefixes)
    return {k: v for k, v in mine.items() if k in _PASSED or k.startswith(beginnings)}


def program_environment(
    mine: Mapping[str, str],
    work: Work,
    device: Mapping[str, str],
    cores: Sequence[int],
    owner: Path,
    account: UnixAccount | None = None,
) -> dict[str, str]:
    """The whole environment of a training process; `mine` is the node daemon's own, `owner` the
    trial's directory, `account` as whom it runs, by default the daemon's."""
    mine = as_if(mine, account or own())
    env = passed(mine)
    # The study's interpreter is what `python` means to its program.
    if os.path.isabs(work.program.python):
        folders = [os.path.dirname(work.program.python), env.get("PATH", os.defpath)]
        env["PATH"] = os.pathsep.join(folders)
    env.update(work.program.environment)
    _see_to_folders(env, mine, account or own())
    env.update(device)
    if cores:
        env["HERMES_CPU_CORES"] = ",".join(map(str, cores))
    env[OWNER] = str(owner.absolute())
    return env


def names_temporary(work: Work, env: Mapping[str, str]) -> bool:
    """Whether a study says itself where its program's temporary files are, in this environment."""
    named = dict(work.program.environment).get(_TMPDIR)
    return named is not None and env.get(_TMPDIR) == named


def as_if(mine: Mapping[str, str], account: UnixAccount) -> dict[str, str]:
    """The daemon's environment, as it would be if the daemon were this account's."""
    if account.is_own:
        return dict(mine)
    kept = {name: value for name, value in mine.items() if name not in _ONES_OWN}
    return {**kept, "HOME": str(account.home), "USER": account.name, "LOGNAME": account.name}


def _may_write(path: str, account: UnixAccount) -> bool:
    if account.is_own:
        return os.access(path, os.W_OK | os.X_OK)
    try:
        there = os.stat(path)
    except OSError:
        return False
    return there.st_uid == account.uid or bool(there.st_mode & stat.S_IWOTH)


def _see_to_folders(env: dict[str, str], mine: Mapping[str, str], account: UnixAccount) -> None:
    """What the submitter has as home and for temporary files, where it can be written here; else
    what the node daemon has: the submitter may be of another machine."""
    for name, goes_with in (("HOME", ("USER", "LOGNAME")), (_TMPDIR, ())):
        if name in env and not _may_write(env[name], account):
            for each in (name, *goes_with):
                env.pop(each, None)
                if each in mine:
                    env[each] = mine[each]


def host_environment(program: Mapping[str, str], shim: Path) -> dict[str, str]:
    """The environment of a host or zygote: the program's, with trainer_shim importable.

    Sets of strings iterate alike in every process of a trial; said here, a host need not start
    itself anew to see to it.
    """
    paths = [str(shim), *filter(None, [program.get("PYTHONPATH")])]
    return {"PYTHONHASHSEED": "0", **program, "PYTHONPATH": os.pathsep.join(paths)}
