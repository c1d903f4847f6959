"""The network connections of a program that is told to go on."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack, suppress

import pytest

from trainer_shim.program import connections

# Families whose sockets have no name to be asked for: of XDP and of the kernel's ciphers.
_NAMELESS = ((44, socket.SOCK_RAW), (38, socket.SOCK_SEQPACKET))
_REPAIR = 19


def test_a_socket_of_a_strange_kind_leaves_none_of_the_others_mute() -> None:
    if not connections.are_held():
        pytest.skip("open connections take rights over the network")
    with ExitStack() as opened:
        mute = []
        for _ in range(2):  # in whatever order they are found
            mute.append(opened.enter_context(socket.socket()))
            for kind in _NAMELESS:
                with suppress(OSError):  # not every kernel has them
                    opened.enter_context(socket.socket(*kind))
        for each in mute:
            each.setsockopt(socket.IPPROTO_TCP, _REPAIR, 1)
        before = os.listdir("/proc/self/fd")
        connections.go_on([os.getpid()])
        assert [each.getsockopt(socket.IPPROTO_TCP, _REPAIR) for each in mute] == [0, 0]
        assert len(os.listdir("/proc/self/fd")) == len(before)
