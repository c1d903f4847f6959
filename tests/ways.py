"""A way for bytes from one address to another that can be cut: nothing gets through meanwhile, and
neither side is told, as with a cable that is pulled."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from typing import TypeAlias

# A path of a Unix socket, or a host with a port.
Address: TypeAlias = str | tuple[str, int]
_Ends: TypeAlias = dict[socket.socket, tuple[socket.socket, bool]]
_PIECE_BYTES = 65_536


class Way:
    """Who connects to `here` is connected to `there`; of what comes from there all is lost after so
    many bytes as are `left`, if that is set."""

    def __init__(self, here: Address, there: Address, left: int | None = None) -> None:
        self.here = here
        self.there = there
        self.left = left
        self._is_open = True
        self._told, self._tell = socket.socketpair()

    def pull(self) -> None:
        """Cut it."""
        self._is_open = False
        self._tell.send(b".")

    def plug(self) -> None:
        """Let through what has waited, and what comes."""
        self._is_open = True
        self._tell.send(b".")

    @contextlib.contextmanager
    def serve(self) -> Iterator[None]:
        """Carry bytes for the length of a block, in a thread that has closed every end after it."""
        with self._told, _socket(self.here) as listening:
            if isinstance(self.here, tuple):
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(self.here)
            listening.listen()
            thread = threading.Thread(target=self._carry, args=(listening,))
            thread.start()
            try:
                yield
            finally:
                self._tell.close()
                thread.join()

    def _carry(self, listening: socket.socket) -> None:
        # Of each end that may say something the other one, and whether it is one of there.
        ends: _Ends = {}
        with contextlib.ExitStack() as opened:
            while True:
                sources = [listening, *ends] if self._is_open else []
                ready, _, _ = select.select([self._told, *sources], [], [])
                if self._told in ready:
                    if not self._told.recv(1):
                        return
                elif listening in ready:
                    self._connect(listening, ends, opened)
                else:
                    self._pass_on(ready[0], ends)

    def _connect(self, listening: socket.socket, ends: _Ends, opened: contextlib.ExitStack) -> None:
        mine = opened.enter_context(listening.accept()[0])
        there = opened.enter_context(_socket(self.there))
        try:
            there.connect(self.there)
        except OSError:  # nobody is there now
            mine.close()
            return
        ends[mine], ends[there] = (there, False), (mine, True)

    def _pass_on(self, source: socket.socket, ends: _Ends) -> None:
        sink, is_from_there = ends[source]
        left = self.left if is_from_there else None
        try:
            data = source.recv(_PIECE_BYTES)
            sink.sendall(data[:left])
            if not data:
                del ends[source]
                sink.shutdown(socket.SHUT_WR)
        except OSError:  # one of the two is gone
            for end in (source, sink):
                ends.pop(end, None)
                end.close()
            return
        if left is not None:
            self.left = max(0, left - len(data))


def _socket(address: Address) -> socket.socket:
    return socket.socket(socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX)
