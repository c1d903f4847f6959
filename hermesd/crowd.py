"""Makes room at the ports of a gRPC server while somebody fills them with connections.

gRPC accepts connections by itself, and once a port has as many as it may, it ends each new one at
once, whoever's it is. So at half of that this process looks through its own sockets, and ends those
by which nobody has made a call that was let in: the oldest of the address that has the most. A few
of each address have some time to make their first call. An attacker fills a port faster than
anybody can look: so the kernel lets no more in for some seconds from an address that had too many.

Of a Unix socket nobody can tell by which connection a call came. There the newest of the account
that has the most are ended, and it is the account that gets no more.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

from hermesd import barring
from hermesd.logs import get_logger

# Who connects has something to say, and says it at once.
GRACE_SECONDS = 2.0
# More than the programs of one person begin in that time, or those of a small network behind one
# address.
FEW = 8
BARRED_SECONDS = 5.0
# Of one identity so many connections are known to be in use, those by which it called last.
CALLING_OF_ONE = 128
CALLING_PART = 8  # of a port's, if that is less
CALLERS_KNOWN = 20_000
# How often the number of open files is looked at, and how often at them all while they are few.
_STEP_SECONDS = 0.05
_LOOK_SECONDS = 10.0
# Looking takes at most a twentieth of a core's time.
_PART_OF_TIME = 20
_LOG_SECONDS = 60.0

_OPEN_FILES = Path("/proc/self/fd")

# A port, or the path of a Unix socket.
Port: TypeAlias = "int | str"
# An IPv4 address, the first half of an IPv6 one (who has one has them all), a link-local one with
# the number of its link (all begin alike), or an account.
Party: TypeAlias = "bytes | int"

log = get_logger()


@dataclass(frozen=True, slots=True)
class _Socket:
    """One of ours, as it was found."""

    #: The number under which it was.
    fd: int
    inode: int
    since: float
    #: None for one that is not a server's.
    port: Port | None = None
    listens: bool = False
    party: Party = 0
    #: What gRPC calls the other end; empty at a Unix socket.
    peer: str = ""


@dataclass(slots=True)
class _Sockets:
    """Those of one port."""

    listening: list[_Socket] = field(default_factory=list)
    connected: list[_Socket] = field(default_factory=list)


class Crowd:
    """The connections of this process's servers, each of whose ports may have `most`."""

    def __init__(self, most: int) -> None:
        self._enough = most // 2
        self._of_one = min(CALLING_OF_ONE, max(FEW, most // CALLING_PART))
        self._calling: dict[str, dict[str, None]] = {}
        self._known: dict[int, _Socket] = {}
        self._barred_until: dict[Party, float] = {}
        self._logged_at: dict[Port, float] = {}

    def called(self, who: str, peer: str) -> None:
        """Note that a call of `who` was let in, which came by the connection from `peer`."""
        calling = self._calling.setdefault(who, {})
        calling.pop(peer, None)
        calling[peer] = None
        if len(calling) > self._of_one:
            del calling[next(iter(calling))]
        if len(self._calling) > CALLERS_KNOWN:
            del self._calling[next(iter(self._calling))]

    @contextmanager
    def watched(self, *addresses: str) -> Iterator[None]:
        """Make room at these (HOST:PORT, unix:PATH) for the block, in a thread: the event loop may
        be busy."""
        ports, over = {_port(address) for address in addresses}, threading.Event()
        thread = threading.Thread(target=self._watch, args=(ports, over), name="crowd", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _watch(self, ports: set[Port], over: threading.Event) -> None:
        looked_at = took = 0.0
        while not over.wait(max(_STEP_SECONDS, took * _PART_OF_TIME)):
            begun = time.monotonic()
            try:
                is_due = self._barred_until or begun - looked_at >= _LOOK_SECONDS
                if is_due or _open_files() > self._enough:
                    looked_at = begun
                    self._make_room(self._look(ports, begun), begun)
            except OSError as error:  # all files are in use, for example
                log.warning("no room could be made for connections", reason=str(error))
                over.wait(_LOOK_SECONDS)
            took = time.monotonic() - begun

    def _make_room(self, found: Mapping[Port, _Sockets], now: float) -> None:
        calling = {peer for peers in list(self._calling.values()) for peer in list(peers)}
        before = set(self._barred_until)
        self._barred_until = {p: until for p, until in self._barred_until.items() if until > now}
        for port, sockets in found.items():
            excess = len(sockets.connected) - self._enough
            idle = [one for one in sockets.connected if one.peer not in calling]
            ended: list[_Socket] = []
            for rank, one in _ranked(idle) if excess > 0 else ():
                is_young = isinstance(port, str) or now - one.since < GRACE_SECONDS
                if len(ended) < excess and not (rank <= FEW and is_young) and _end(one):
                    ended.append(one)
                    if rank > FEW:
                        self._barred_until[one.party] = now + BARRED_SECONDS
            self._tell(port, ended, now)
        if set(self._barred_until) != before:
            self._bar(found)

    def _bar(self, found: Mapping[Port, _Sockets]) -> None:
        """Have the kernel do so; where it cannot, it does not."""
        until = self._barred_until
        latest = sorted(until, key=lambda party: -until[party])[: barring.MOST]
        addresses = [party for party in latest if isinstance(party, bytes)]
        accounts = [party for party in latest if isinstance(party, int)]
        for port, sockets in found.items():
            if isinstance(port, str):
                with suppress(OSError):
                    barring.bar_accounts(Path(port), accounts)
                continue
            for one in sockets.listening:
                with suppress(OSError), _same(one) as listener:
                    barring.bar_addresses(listener, addresses)

    def _look(self, ports: set[Port], now: float) -> Mapping[Port, _Sockets]:
        """Our sockets at these. Raises OSError."""
        known: dict[int, _Socket] = {}
        found = {port: _Sockets() for port in ports}
        for fd in map(int, os.listdir(_OPEN_FILES)):
            with suppress(OSError):  # it was closed meanwhile
                status = os.fstat(fd)
                if not stat.S_ISSOCK(status.st_mode):
                    continue
                one = self._known.get(fd)
                if one is None or one.inode != status.st_ino:
                    one = _examined(fd, now)
                known[fd] = one
                if one.port in found:
                    sockets = found[one.port]
                    (sockets.listening if one.listens else sockets.connected).append(one)
        self._known = known
        return found

    def _tell(self, port: Port, ended: list[_Socket], now: float) -> None:
        """Have the log say so once a minute."""
        if ended and now - self._logged_at.get(port, -_LOG_SECONDS) >= _LOG_SECONDS:
            self._logged_at[port] = now
            who = ended[0].peer or f"account {ended[0].party!r}"
            words = "a port is crowded: connections that keep others out are ended"
            log.warning(words, port=port, peer=who)


def _open_files() -> int:
    """How many this process has; the kernel says so since Linux 6.2."""
    return _OPEN_FILES.stat().st_size or len(os.listdir(_OPEN_FILES))


def _port(address: str) -> Port:
    path = address.removeprefix("unix:")
    return path if path != address else int(address.rpartition(":")[2])


@contextmanager
def _same(one: _Socket) -> Iterator[socket.socket]:
    """The socket, by another number, which nobody closes meanwhile. Raises OSError where it is
    closed already."""
    with socket.socket(fileno=os.dup(one.fd)) as found:
        if os.fstat(found.fileno()).st_ino != one.inode:
            raise OSError("the number is another file's by now")
        yield found


def _end(one: _Socket) -> bool:
    """Have gRPC find that the other end is gone. Whether it was there."""
    with suppress(OSError), _same(one) as connection:
        connection.shutdown(socket.SHUT_RDWR)
        return True
    return False


def _examined(fd: int, now: float) -> _Socket:
    """What a socket is. Raises OSError where it is none any more, or not connected any more."""
    with socket.socket(fileno=os.dup(fd)) as one:
        inode, family, is_stream = os.fstat(one.fileno()).st_ino, one.family, one.type
        if is_stream != socket.SOCK_STREAM:
            return _Socket(fd, inode, now)
        listens = bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
        if family == socket.AF_UNIX:
            path = one.getsockname()
            told = one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII"))
            _, account, _ = struct.unpack("iII", told)
            return _Socket(fd, inode, now, path, listens, account)
        if family not in (socket.AF_INET, socket.AF_INET6):
            return _Socket(fd, inode, now)
        port = one.getsockname()[1]
        if listens:
            return _Socket(fd, inode, now, port, listens)
        party, peer = _who(*one.getpeername())
        return _Socket(fd, inode, now, port, listens, party, peer)


def _who(host: str, port: int, flow: int = 0, scope: int = 0) -> tuple[bytes, str]:
    """Whose an address is, and what gRPC calls it with this port: a link-local one by the number of
    its link, too."""
    four = host.removeprefix("::ffff:")
    if ":" in four:
        address = socket.inet_pton(socket.AF_INET6, host)
        at = f"[{host}%{scope}]" if scope else f"[{host}]"
        is_local = address[:8] == barring.LINK_LOCAL
        party = address + struct.pack("!I", scope) if is_local else address[:8]
        return party, f"ipv6:{quote(at, safe=':')}:{port}"
    return socket.inet_aton(four), f"ipv4:{four}:{port}"


def _ranked(connections: Iterable[_Socket]) -> list[tuple[int, _Socket]]:
    """In the order in which they are to be ended, each with how many its party has until then: of
    an address the oldest first, of an account the newest."""
    parties: dict[Party, list[_Socket]] = {}
    for one in connections:
        parties.setdefault(one.party, []).append(one)
    ranked: list[tuple[int, _Socket]] = []
    for party, mine in parties.items():
        mine.sort(key=lambda one: (one.since, one.inode), reverse=isinstance(party, bytes))
        ranked += enumerate(mine, start=1)
    return sorted(ranked, key=lambda each: -each[0])
