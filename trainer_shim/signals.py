"""Signals as a program finds them that is started at a prompt.

What a daemon inherited must not affect a trial. A process that is started in the background of a
script, by nohup or by some services has SIGINT, SIGHUP or SIGCHLD ignored or blocked, and so has
everything that it starts: a trial would not stop at Ctrl-C, or would find none of its children's
exit codes.
"""

from __future__ import annotations

import signal

# Python ignores these itself, in each of its processes.
PYTHONS_OWN = frozenset({signal.SIGPIPE, signal.SIGXFSZ})


def unblock() -> None:
    """Block no signal, and ignore only what every Python does."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - PYTHONS_OWN:
        if signal.getsignal(number) is signal.SIG_IGN:
            interrupt = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if interrupt else signal.SIG_DFL)


def stop_ignoring() -> None:
    """Before another program takes this process's place: ignore what Python does no more."""
    for number in PYTHONS_OWN:
        signal.signal(number, signal.SIG_DFL)
