"""`hermesd` and `hermesctl` as processes that have nothing to import: forked from one that has.

To import a daemon takes a second of a core, to refuse its settings some milliseconds. The words,
variables, folder and streams of each process are its own.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from functools import cache
from typing import NoReturn

import hermesctl.cli
from hermesd import __main__ as hermesd

PROGRAMS = {"hermesd": hermesd.main, "hermesctl": hermesctl.cli.main}


class Forked:
    """A command line that begins with `hermesd` or `hermesctl`, in this environment."""

    def __init__(self, *words: str, environment: Mapping[str, str] = os.environ) -> None:
        self._streams = [os.memfd_create(name) for name in ("stdout", "stderr")]
        self._ended, theirs = socket.socketpair()
        request = json.dumps([words, dict(environment), os.getcwd()]).encode()
        with theirs:
            socket.send_fds(_forker(), [request], [*self._streams, theirs.fileno()])

    def communicate(self) -> tuple[int, str, str]:
        """Its exit code, and what it has written to stdout and stderr, once it has ended."""
        with self._ended:
            code = int(self._ended.recv(100))
        written = []
        for descriptor in self._streams:
            with open(descriptor) as stream:
                stream.seek(0)
                written.append(stream.read())
        return code, written[0], written[1]


@cache
def _forker() -> socket.socket:
    """The way to the process of this session that has imported everything; it ends with us."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        words = [sys.executable, "-m", "tests.forked"]
        as_stdin = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)]
        os.posix_spawn(sys.executable, words, os.environ, file_actions=as_stdin)
    return ours


def _serve() -> None:
    for module in ("typer._adapters", "hermesd.head.server", "hermesd.node.daemon"):
        importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(fileno=os.dup(0)) as requests:
        while True:
            content, descriptors, *_ = socket.recv_fds(requests, 1 << 20, 3)
            if not content:
                return
            if os.fork() == 0:
                requests.close()
                _start(*json.loads(content), *descriptors)
            for descriptor in descriptors:
                os.close(descriptor)


def _start(
    words: list[str], environment: dict[str, str], folder: str, out: int, error: int, ended: int
) -> NoReturn:
    """Become a process that waits for one that becomes the program."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    program = os.fork()
    if program != 0:
        _, status = os.waitpid(program, 0)
        os.write(ended, str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    os.close(ended)
    for stream, descriptor in ((1, out), (2, error)):
        os.dup2(descriptor, stream)
        os.close(descriptor)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = words
    code = 1
    try:
        PROGRAMS[words[0]]()
    except SystemExit as ending:
        code = int(ending.code or 0)
    except BaseException:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve()
