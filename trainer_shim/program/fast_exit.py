"""The end of a training process, without what only Python itself needs.

Threads are waited for, exit handlers run, what the program has made is released, files are flushed,
and the C library runs its own handlers. Imported modules are not taken apart: for a framework that
takes most of a second while the device is held, and in a forked process each page is copied first.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import io
import itertools
import sys
import threading
import types
from typing import Any, NoReturn

_finish_threads: Any = getattr(threading, "_shutdown", None)


def wait_for_threads() -> None:
    """Wait until the program's other threads are over, as Python does before it exits: the program
    is not over before."""
    others = (one for one in threading.enumerate() if one is not threading.current_thread())
    if _finish_threads is not None and not all(thread.daemon for thread in others):
        _finish_threads()


def leave(code: int) -> NoReturn:
    """End the process with this exit code."""
    run_handlers: Any = getattr(atexit, "_run_exitfuncs", None)
    if _finish_threads is None or run_handlers is None:
        sys.exit(code)  # a Python that does it in another way does it itself
    _finish_threads()
    run_handlers()
    if threading.active_count() == 1:  # a daemon thread may still use what there is
        _let_go()
    _flush()
    # With the lock of the interpreter held: no thread of the program runs meanwhile.
    ctypes.PyDLL(None).exit(code)
    raise AssertionError("exit returns to nobody")


def _let_go() -> None:
    """Drop the values of the main module, so that what finishes its work when it is dropped (an
    archive, a writer of records) does so; functions and modules may be needed for that."""
    lasting = (types.ModuleType, types.FunctionType, type)
    names = vars(sys.modules.get("__main__", types.ModuleType("__main__")))
    made = [name for name, value in names.items() if not isinstance(value, lasting)]
    for name in made:
        if not name.startswith("__"):
            del names[name]
    gc.collect()


def _flush() -> None:
    """Write what open files hold back."""
    # Not in one list of ours: it would be among the objects, hold itself, and with it all of them.
    for value in itertools.chain(gc.get_objects(), (sys.stdout, sys.stderr)):
        if isinstance(value, (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)):
            with contextlib.suppress(OSError, ValueError):
                value.flush()
