"""The launcher: starts a program that is nobody's child, under another account if asked.

`python -I -S detach.py [--world [--init] | --stay]` reads a JSON object from its standard input,
with `command`, `environment`, `folder` and, for a program that is to run under another account,
`account` (`user`, `group`, `groups`). It prints the program's process number, and the program's
output goes to our standard error. With `--stay` it becomes the program instead, whose errors go
where its output goes.

It is executed as a file of its own, so that it imports little and can be read in one sitting: where
root has programs run as their users, nothing else changes the account of a process. Nothing that
belongs to a program, least of all its environment, is used before root's rights have been given up
for good.

An asyncio child is killed when its transport is collected, but hosts must outlive their daemon.
With `--world`, the program gets namespaces of its own for processes, mounts, clocks and, unless
root runs it, users, and its own shared memory. It is process 1 there; with `--world --init` its
parent is, and ends with the last process there.
"""

import contextlib
import ctypes  # while this process may read it
import json
import os
import sys

_NEWTIME, _NEWNS, _NEWUSER, _NEWPID = 0x80, 0x00020000, 0x10000000, 0x20000000
_REC, _SLAVE, _NOSUID, _NODEV, _NOEXEC = 1 << 14, 1 << 19, 2, 4, 8
_SET_DUMPABLE, _SET_NO_NEW_PRIVS = 4, 38


def main() -> None:
    """Start the program in a session of its own and leave it to init."""
    is_world, is_below = "--world" in sys.argv, "--init" in sys.argv
    wanted = json.load(sys.stdin)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        if "account" in wanted:
            _become(**wanted["account"])
        os.chdir(wanted["folder"])
        os.environ.clear()
        os.environ.update(wanted["environment"])
        command = wanted["command"]
        if "--stay" in sys.argv:
            os.dup2(1, 2)
            os.execvp(command[0], command)
        pid = _in_world(command, is_below) if is_world else _spawn(command)
    except OSError as error:
        sys.exit(error.strerror)
    print(pid)


def _become(user: int, group: int, groups: list[int]) -> None:
    """Be this account, with no way back and no way to more. Raises OSError."""
    if user == 0 or group == 0:
        sys.exit("no program runs as root for somebody else")
    os.setgroups(groups)
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    _call("prctl", _SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # What root was is not to be looked into; that is over, and it may write its own uid_map.
    _call("prctl", _SET_DUMPABLE, 1, 0, 0, 0)
    if os.getresuid() != (user,) * 3 or os.getresgid() != (group,) * 3 or _can_return():
        sys.exit("the rights of the node daemon are not gone")


def _can_return() -> bool:
    try:
        os.setuid(0)
    except PermissionError:
        return False
    return True


def _spawn(command: list[str]) -> int:
    errors_too = [(os.POSIX_SPAWN_DUP2, 2, 1)]
    return os.posix_spawnp(command[0], command, os.environ, file_actions=errors_too, setsid=True)


def _in_world(command: list[str], is_below: bool) -> int:
    """The number of the program as it is seen from here. Raises OSError."""
    told, tells = os.pipe()
    # The first process there mounts another one in its place.
    outside = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
    _enter()
    first = os.fork()
    if first == 0:
        os.close(told)
        _be_first(command, is_below, tells)
    os.close(tells)
    with os.fdopen(told) as answer:
        failure = answer.read()
    if failure.strip():
        raise OSError(0, failure)
    if not is_below:
        return first
    # Its parent is the first process of a world, so it is that one's only child.
    path = f"{first}/task/{first}/children"
    with open(path, opener=lambda name, flags: os.open(name, flags, dir_fd=outside)) as children:
        return int(children.read().split()[0])


def _enter() -> None:
    """Go into new namespaces. Root needs none of users, and CRIU does more for it without."""
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        try:
            _call("unshare", _NEWNS | _NEWPID)
            _enter_time()
            return
        except PermissionError:  # a root that is none outside of its container
            pass
    _call("unshare", _NEWUSER | _NEWNS | _NEWPID)
    _write("/proc/self/setgroups", "deny")
    for name, own in (("uid_map", user), ("gid_map", group)):
        _write(f"/proc/self/{name}", f"0 {own} 1")
    _enter_time()


def _enter_time() -> None:
    """Clocks of the world's own, so that a trial's may be set back to when an image of it was made:
    who is in the first ones may not go back to these."""
    with contextlib.suppress(OSError):  # a kernel without them
        _call("unshare", _NEWTIME)


def _be_first(command: list[str], is_below: bool, tells: int) -> None:
    """Process 1 of the world: become the program, or start it and reap what is left to us."""
    try:
        os.setsid()
        os.dup2(2, 1)
        _call("mount", None, b"/", None, _REC | _SLAVE, None)
        _call("mount", b"proc", b"/proc", b"proc", _NOSUID | _NODEV | _NOEXEC, None)
        if os.path.isdir("/dev/shm"):
            _call("mount", b"shm", b"/dev/shm", b"tmpfs", _NOSUID | _NODEV, b"mode=1777")
        if is_below:
            os.posix_spawnp(command[0], command, os.environ, setsid=True)
        else:
            os.execvp(command[0], command)
    except OSError as error:
        os.write(tells, (error.strerror or str(error)).encode())
        os._exit(1)
    os.close(tells)
    os.chdir("/")
    while True:
        try:
            os.wait()
        except ChildProcessError:
            os._exit(0)


def _call(name: str, *arguments: object) -> None:
    """One of the system's functions. Raises OSError."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


if __name__ == "__main__":
    main()
