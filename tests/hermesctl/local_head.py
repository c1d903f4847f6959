"""A stand-in for `hermesd local`: answers ServerInfo on the state directory's socket.

`--slots 11` never has its node, `--slots 12` not when it is first asked. `--slots 13` ends at
once, `--slots 14` never serves its socket, `--slots 15` finds another one in its way.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import math
import os
import signal
import sys
from pathlib import Path

from grpc import aio

from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import control_pb2_grpc


class Service(control_pb2_grpc.ControlServiceServicer):
    def __init__(self, asked_before: float) -> None:
        self._still = asked_before

    async def ServerInfo(self, request: object, context: object) -> pb.ServerInfoResponse:
        return pb.ServerInfoResponse(version="0.1.0")

    async def ListNodes(self, request: object, context: object) -> pb.ListNodesResponse:
        self._still -= 1
        return pb.ListNodesResponse(nodes=[pb.Node(id="local", connected=self._still < 0)])


async def serve(state: Path, asked_before: float, slots: int) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    server = aio.server()
    control_pb2_grpc.add_ControlServiceServicer_to_server(Service(asked_before), server)
    socket = state / "head.sock"
    socket.unlink(missing_ok=True)
    server.add_insecure_port(f"unix:{socket}")
    lock = (state / "running.lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    print(os.getpid(), file=lock, flush=True)
    record = {"pid": os.getpid(), "socket": str(socket), "slots": str(slots) if slots else None}
    (state / "local.json").write_text(json.dumps(record))
    await server.start()
    await stopped.wait()
    await server.stop(None)
    socket.unlink(missing_ok=True)
    (state / "local.json").unlink()
    lock.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--slots", type=int, default=0)
    options = parser.parse_args()
    if options.slots == 13:
        print("\x1b[31mno such slots\x1b[0m", file=sys.stderr)
        sys.exit(3)
    if options.slots == 15:
        sys.exit(4)
    if options.slots == 14:
        signal.pause()
    asked_before = {11: math.inf, 12: 1}.get(options.slots, 0)
    asyncio.run(serve(options.state, asked_before, options.slots))


if __name__ == "__main__":
    main()
