"""Has the kernel let no further connections in from certain addresses or accounts, at a port or a
Unix socket of this process. It takes no privilege.

At a port that is a filter in classic BPF (linux/filter.h) on the socket that listens. It drops what
begins a connection as if it were lost on its way: a program that is there to stay tries again. At
a Unix socket it is an access control list (acl(5)) of its file, whose owner this process must be.
"""

from __future__ import annotations

import ctypes
import os
import socket
import stat
import struct
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

# The first half of all link-local addresses (RFC 4291).
LINK_LOCAL = b"\xfe\x80" + bytes(6)
# The filter must fit into net.core.optmem_max, 20 KB where it is least.
MOST = 200

_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_LOAD_BYTE, _LOAD_WORD, _AND = 0x30, 0x20, 0x54
_JUMP_IF_EQUAL, _JUMP_IF_SET, _JUMP, _RETURN = 0x15, 0x45, 0x05, 0x06
_DROP, _PASS = (_RETURN, 0, 0, 0), (_RETURN, 0, 0, 0xFFFFFFFF)
# Where in a packet there is what: the filter sees TCP's header, and IP's by this offset.
_IP = 0xFFF00000
_TCP_FLAGS, _SYN = 13, 0x02
_IPV4_SOURCE, _IPV6_SOURCE = _IP + 12, _IP + 8

Instruction = tuple[int, int, int, int]

_ACL, _ACL_VERSION = "system.posix_acl_access", 2
_OWNER, _USER, _GROUP, _MASK, _OTHERS = 0x01, 0x02, 0x04, 0x10, 0x20
_NO_ID = 0xFFFFFFFF


def bar_accounts(path: Path, accounts: Sequence[int]) -> None:
    """Let none of these connect, but all others that the file's mode lets. Raises OSError where the
    file system has no such lists, and for an account that it does not know."""
    mode = stat.S_IMODE(path.stat().st_mode)
    entries = [
        (_OWNER, mode >> 6 & 7, _NO_ID),
        *((_USER, 0, account) for account in sorted(accounts)),
        (_GROUP, mode >> 3 & 7, _NO_ID),
        # By which the mode goes on to say what it said.
        *([(_MASK, mode >> 3 & 7, _NO_ID)] if accounts else []),
        (_OTHERS, mode & 7, _NO_ID),
    ]
    words = [struct.pack("<HHI", *entry) for entry in entries]
    os.setxattr(path, _ACL, struct.pack("<I", _ACL_VERSION) + b"".join(words))


def bar_addresses(listener: socket.socket, parties: Sequence[bytes]) -> None:
    """Drop what begins a connection from these: IPv4 addresses, first halves of IPv6 ones, and
    whole link-local ones, whatever follows them. Raises OSError where the kernel cannot."""
    if not parties:
        listener.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
        return
    program = [struct.pack("HBBI", *instruction) for instruction in _program(parties)]
    words = ctypes.create_string_buffer(b"".join(program))
    filter_ = struct.pack("HP", len(program), ctypes.addressof(words))
    listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filter_)


def _dropped(halves: Iterable[tuple[int, int]], at: int) -> list[Instruction]:
    """Drop what has one of these halves of an address at this place."""
    return [
        instruction
        for first, second in halves
        for instruction in (
            (_LOAD_WORD, 0, 0, at),
            (_JUMP_IF_EQUAL, 0, 3, first),
            (_LOAD_WORD, 0, 0, at + 4),
            (_JUMP_IF_EQUAL, 0, 1, second),
            _DROP,
        )
    ]


def _program(parties: Sequence[bytes]) -> list[Instruction]:
    """Jumps count instructions to skip, if true and if false."""
    four = [struct.unpack("!I", party) for party in parties if len(party) == 4]
    six = [struct.unpack("!II", party) for party in parties if len(party) == 8]
    local = [struct.unpack_from("!II", party, 8) for party in parties if len(party) > 8]
    (link_local,) = struct.unpack_from("!I", LINK_LOCAL)
    for_six: list[Instruction] = [
        *_dropped(six, _IPV6_SOURCE),
        (_LOAD_WORD, 0, 0, _IPV6_SOURCE),
        (_JUMP_IF_EQUAL, 1, 0, link_local),
        _PASS,
        *_dropped(local, _IPV6_SOURCE + 8),
        _PASS,
    ]
    for_four: list[Instruction] = [
        (_LOAD_WORD, 0, 0, _IPV4_SOURCE),
        *chain.from_iterable(((_JUMP_IF_EQUAL, 0, 1, address), _DROP) for (address,) in four),
        _PASS,
    ]
    return [
        (_LOAD_BYTE, 0, 0, _TCP_FLAGS),
        # Sockets of connections inherit the filter, and must get all that they are sent.
        (_JUMP_IF_SET, 1, 0, _SYN),
        _PASS,
        (_LOAD_BYTE, 0, 0, _IP),
        (_AND, 0, 0, 0xF0),
        (_JUMP_IF_EQUAL, 0, 1, 0x40),
        (_JUMP, 0, 0, len(for_six)),
        *for_six,
        *for_four,
    ]
