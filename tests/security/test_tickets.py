"""A ticket for a checkpoint is of use to the node alone for which it was made, and not for ever."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc

from hermesd.config.schema import NodeConfig
from hermesd.core.model import Checkpoint
from hermesd.node.clock import boottime
from hermesd.node.storage.checkpoints import MANIFEST
from hermesd.pb.hermes.v1 import enroll_pb2, node_pb2_grpc, transfer_pb2_grpc
from hermesd.pb.hermes.v1 import transfer_pb2 as pb
from hermesd.security.enrollment import Membership, channel_options
from hermesd.security.identity import server_name
from hermesd.security.ticket import TICKET_SECONDS, bearer_of, ticket
from tests.head.heads import Node, World
from tests.head.test_enroll import Open, connected, head
from tests.node.test_fetching import TRIAL, Giver

assert head  # a fixture


async def asked(giver: Giver, member: Membership, word: bytes) -> tuple[Any, str]:
    """What comes of asking for the manifest, and of doubting it, with this certificate and ticket,
    and what is said."""
    options = channel_options(server_name("a"))
    credentials = member.credentials()
    wanted: dict[str, Any] = {"trial": TRIAL, "checkpoint": giver.checkpoint.id, "ticket": word}
    async with grpc.aio.secure_channel(
        giver.server.address, credentials, options=options
    ) as channel:
        stub: Any = transfer_pb2_grpc.TransferServiceStub(channel)
        fetch = stub.Fetch(pb.FetchRequest(file=MANIFEST, **wanted))
        with suppress(grpc.aio.AioRpcError):
            assert [piece async for piece in fetch]
        doubt = stub.Doubt(pb.DoubtRequest(**wanted))
        assert await doubt.code() is await fetch.code()
        return await fetch.code(), await fetch.details()


async def test_only_the_node_that_got_a_ticket_may_show_it_and_not_for_ever(
    head: Open, tmp_path: Path
) -> None:
    node = enroll_pb2.IDENTITY_ROLE_NODE
    await head.member(node, "a", tmp_path / "a" / "membership")
    mine = await head.member(node, "b", tmp_path / "b")
    others = [
        await head.member(node, "c", tmp_path / "c"),
        await head.member(enroll_pb2.IDENTITY_ROLE_USER, "b", tmp_path / "user"),
        await head.member(enroll_pb2.IDENTITY_ROLE_ADMIN, "b", tmp_path / "admin"),
    ]
    giver = Giver(tmp_path / "a")
    await giver.server.start(NodeConfig(name="a", state_dir=tmp_path / "a"))
    key, checkpoint = giver.server.key, giver.checkpoint.id
    try:
        word = ticket(key, TRIAL, checkpoint, "b", boottime() + TICKET_SECONDS)
        assert (await asked(giver, mine, word))[0] is grpc.StatusCode.OK
        giver.doubted.clear()
        for thief in others:
            code, said = await asked(giver, thief, word)
            assert code is grpc.StatusCode.PERMISSION_DENIED
            assert said == "the ticket was made for node b"
        ended = ticket(key, TRIAL, checkpoint, "b", boottime())
        for useless in (
            ended,
            word[:8] + ended[8:],  # of another time
            word[:-1] + b"c",
            word[:-1],
            word[:8],
            b"",
            ticket(b"another node's", TRIAL, checkpoint, "b", math.inf),
        ):
            for who in (mine, others[0]):
                code, said = await asked(giver, who, useless)
                assert (code, said) == (
                    grpc.StatusCode.PERMISSION_DENIED,
                    "not a ticket for this",
                )
        assert giver.doubted == []
    finally:
        await giver.server.stop()


async def test_a_head_makes_tickets_for_a_time_by_the_clock_of_who_gives(
    head: Open, tmp_path: Path
) -> None:
    """Which is a machine's that started another day."""
    box = await head.member(enroll_pb2.IDENTITY_ROLE_NODE, "a", tmp_path / "a")
    async with connected(box) as channel:
        stub: Any = node_pb2_grpc.NodeServiceStub(channel)
        node = Node(World(None, channel, None, stub, Path()), "a")  # type: ignore[arg-type]
        clock = boottime() + 1e6
        await node.hello(transfer_key=b"k", transfer_address="a:1", boottime_seconds=clock)
        checkpoint = Checkpoint(f"{TRIAL}@s5", TRIAL, 1, 5, "", 1, ("a",))
        word = head.running.sessions.source("a", checkpoint, "b").ticket
        ends = clock + TICKET_SECONDS
        for now, bearer in ((ends - 60, "b"), (ends + 60, None)):
            assert bearer_of(word, b"k", TRIAL, checkpoint.id, now) == bearer
        node.call.cancel()
