"""Serves the files of an image to the CRIU that restores it, decompressing them on the way.

CRIU asks for them one by one, by its `--stream` protocol. A request and an answer are Protocol
Buffers messages with one field each, preceded by their size; after its answer comes the end of a
pipe that takes the content. So nothing is unpacked to disk, and a program's memory is read while
the next part of it is decompressed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import struct
import threading
from collections.abc import Iterator

from trainer_shim import zstd
from trainer_shim.host.freeze import die_with_parent

# Where CRIU looks for it, in the folder that it is given for its images.
_SOCKET = "streamer-serve.sock"
_SIZE = struct.Struct("=I")
_NAME, _EXISTS = b"\x0a", b"\x08"  # the keys of the fields: text, and a number
_CHUNK = 1 << 20
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ


def begin(images: str) -> None:
    """Have the files below `images` served by a socket in the working directory, in a child that
    ends with this process, which is to become CRIU. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_SOCKET)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(_SOCKET)
        listener.listen(1)
        parent = os.getpid()
        if os.fork() != 0:
            return
        try:
            die_with_parent(parent)
            _serve(images, listener)
            while True:
                signal.pause()  # CRIU is not to see a child end that it did not start
        finally:
            os._exit(1)


def _serve(images: str, listener: socket.socket) -> None:
    criu, _ = listener.accept()
    while size := _received(criu, _SIZE.size):
        name = _name(_received(criu, _SIZE.unpack(size)[0]))
        plain = os.path.join(images, os.path.basename(name))
        path = next((each for each in (plain, plain + zstd.SUFFIX) if os.path.exists(each)), None)
        answer = _EXISTS + bytes([path is not None])
        criu.sendall(_SIZE.pack(len(answer)) + answer)
        if path is not None:
            _, (pipe,), _, _ = socket.recv_fds(criu, 1, 1)
            threading.Thread(target=_feed, args=(path, pipe), daemon=True).start()


def _received(criu: socket.socket, size: int) -> bytes:
    """So many bytes, or none at the end."""
    data = b""
    while len(data) < size and (more := criu.recv(size - len(data))):
        data += more
    return data


def _name(request: bytes) -> str:
    size = request[1] if len(request) > 1 else 0
    if request[:1] != _NAME or size > 127 or len(request) != 2 + size:
        raise ValueError(f"CRIU asks {request[:80]!r}, expected the name of a file")
    return request[2:].decode()


def _feed(path: str, pipe: int) -> None:
    try:
        if os.path.getsize(path) > _CHUNK:
            with contextlib.suppress(OSError):  # where a user may not have one of that size
                fcntl.fcntl(pipe, _SET_PIPE_SIZE, _CHUNK)
        for part in zstd.content(path) if path.endswith(zstd.SUFFIX) else _parts(path):
            view = memoryview(part)
            while view:
                view = view[os.write(pipe, view) :]
    except BrokenPipeError:  # CRIU needs no more of it
        pass
    finally:
        os.close(pipe)


def _parts(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while data := file.read(_CHUNK):
            yield data
