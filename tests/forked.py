"""Processes that have nothing to import: forked from one that has.

To import a daemon takes a second of a core, to import Keras five. The words, variables, folder and
streams of each process are its own.
"""

from __future__ import annotations

import errno
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import NoReturn

# The modules of each program that have its `main`, and what each process of it imports later.
PROGRAMS = {"hermesd": "hermesd.__main__", "hermesctl": "hermesctl.cli"}
# Keras imports matplotlib, pandas and scikit-learn where they are, which takes a third of its time;
# while PYTHONPATH has this folder, they are not.
WITHOUT = str(Path(__file__).parent / "without")
LATER = ("typer._adapters", "hermesd.head.server", "hermesd.node.daemon")


class Forked:
    """A command line that begins with `hermesd` or `hermesctl`, in this environment; or with
    `keras`, which is a Python that has imported it, and goes on with a script or `-m MODULE`."""

    def __init__(
        self,
        *words: str,
        environment: Mapping[str, str] = os.environ,
        folder: Path | None = None,
    ) -> None:
        self._streams = [os.memfd_create(name) for name in ("stdout", "stderr")]
        self._told, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = json.dumps([words, dict(environment), str(folder or Path.cwd())]).encode()
        with theirs:
            forker = _forker("keras" if words[0] == "keras" else "hermes")
            socket.send_fds(forker, [request], [*self._streams, theirs.fileno()])
        self.pid = int(self._told.recv(100))

    def communicate(self) -> tuple[int, str, str]:
        """Its exit code, and what it has written to stdout and stderr, once it has ended."""
        with self._told:
            code = int(self._told.recv(100))
        written = []
        for descriptor in self._streams:
            with open(descriptor) as stream:
                stream.seek(0)
                written.append(stream.read())
        return code, written[0], written[1]


@cache
def _forker(kind: str) -> socket.socket:
    """The way to the process that has imported everything, for all workers of this session. It ends
    with the last of them, and is nobody's child: some tests end all that are below their own."""
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    address = f"\0hermes-tests-{session}-{kind}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        try:
            listener.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise  # and else another worker was first
        else:
            listener.listen()
            _begin(kind, listener)
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    while True:
        with suppress(ConnectionRefusedError):  # it is bound, and about to listen
            ours.connect(address)
            return ours


def _begin(kind: str, listener: socket.socket) -> None:
    words = [sys.executable, "-m", "tests.forked", kind]
    environment = dict(os.environ)
    if kind == "keras":  # as nodes start interpreters that are warm for programs
        environment |= {"PYTHONHASHSEED": "0", "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": WITHOUT}
    as_stdin = [(os.POSIX_SPAWN_DUP2, listener.fileno(), 0)]
    os.waitpid(os.posix_spawn(sys.executable, words, environment, file_actions=as_stdin), 0)


def _serve(kind: str) -> None:
    if os.fork() != 0:
        os._exit(0)
    os.setsid()
    gc.disable()  # what imports make stays
    for module in ["keras"] if kind == "keras" else [*PROGRAMS.values(), *LATER]:
        importlib.import_module(module)
    sys.path = [path for path in sys.path if path != WITHOUT]
    gc.enable()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    asked = _next_request()
    if asked is None:
        return
    (words, environment, folder), descriptors = asked
    _become(environment, folder, *descriptors)
    if kind == "keras":
        _run(words[1:])
    else:
        _main(words)


def _next_request() -> tuple[tuple[list[str], dict[str, str], str], list[int]] | None:
    """In a new process for each: what it is to be, and its streams. In the one that forks them
    None, once nobody is left who asks."""
    with ExitStack() as ends:
        listener = ends.enter_context(socket.socket(fileno=os.dup(0)))
        workers = [ends.enter_context(listener.accept()[0])]
        while workers:
            for end in select.select([listener, *workers], [], [])[0]:
                if end is listener:
                    workers.append(ends.enter_context(listener.accept()[0]))
                    continue
                content, descriptors, *_ = socket.recv_fds(end, 1 << 20, 3)
                if not content or _user_of(end) != os.getuid():
                    workers.remove(end)
                    end.close()
                elif os.fork() == 0:
                    return json.loads(content), descriptors
                for descriptor in descriptors:
                    os.close(descriptor)
    return None


def _user_of(end: socket.socket) -> int:
    """Who is at the other end: an abstract address is open to everybody."""
    credentials = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])


def _become(environment: dict[str, str], folder: str, out: int, error: int, told: int) -> None:
    """Return in a new process with these streams; this one tells of its start and its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    program = os.fork()
    if program != 0:
        with socket.socket(fileno=told) as caller:
            caller.send(str(program).encode())
            _, status = os.waitpid(program, 0)
            with suppress(BrokenPipeError):  # nobody waits for it
                caller.send(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    os.close(told)
    for stream, descriptor in ((1, out), (2, error)):
        os.dup2(descriptor, stream)
        os.close(descriptor)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)


def _main(words: list[str]) -> NoReturn:
    """Be a command of Hermes, without the time it takes to free what was imported."""
    sys.argv = words
    code = 1
    try:
        sys.modules[PROGRAMS[words[0]]].main()
    except SystemExit as ending:
        code = int(ending.code or 0)
    except BaseException:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _run(words: list[str]) -> None:
    """Be `python WORDS`, to the end of the interpreter."""
    if words[0] == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(words[0])
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    _serve(sys.argv[1])
