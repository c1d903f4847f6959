"""A node is in a private pool by what an admin granted it, never by the name that it gives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from hermesd.pb.hermes.v1 import enroll_pb2 as pb
from hermesd.security.enrollment import Membership, enroll
from hermesd.security.identity import NotEnrolled
from tests.head.heads import by_token, status, world
from tests.head.test_enroll import Open, attached, connected
from tests.head.test_transport import free_port
from tests.security.test_certificates import renew

NODE = pb.IDENTITY_ROLE_NODE
CODE = grpc.StatusCode
POOLS = {
    "gold": {"nodes": ["gold-*", "vault"], "private": True},
    "silver": {"nodes": ["silver-*"]},
}


@pytest.fixture
async def head(tmp_path: Path) -> AsyncIterator[Open]:
    listen, reception = (f"127.0.0.1:{free_port()}" for _ in range(2))
    settings: dict[str, Any] = {"listen": listen, "enroll": reception, "pools": POOLS}
    async with world(tmp_path / "head", embedded=False, **settings) as up:
        system = Open(up.running, up.channel, up.control, up.nodes, up.directory)
        system.address = listen
        yield system


async def joined(head: Open, token: str, name: str, folder: Path) -> Membership:
    return await asyncio.to_thread(enroll, head.address, token, name, folder / name)


async def refusal(channel: grpc.aio.Channel, name: str, **metadata: Any) -> tuple[Any, str]:
    return await status(attached(channel, name, **metadata))


async def test_a_name_alone_opens_no_private_pool(head: Open, tmp_path: Path) -> None:
    token = await head.invite(NODE, uses=9)
    with pytest.raises(NotEnrolled, match=r"gold-9 is in the pool gold, which is private.*--pool"):
        await joined(head, token, "gold-9", tmp_path)
    box = await joined(head, token, "box", tmp_path)
    silver = await joined(head, token, "silver-1", tmp_path)
    for membership in (box, silver):
        async with connected(membership) as channel:
            await attached(channel, membership.identity.name)


async def test_the_token_for_all_nodes_opens_none_either(head: Open, tmp_path: Path) -> None:
    shown = by_token(head.directory / "node-token")
    async with grpc.aio.insecure_channel(f"unix:{head.directory / 'head.sock'}") as channel:
        code, words = await refusal(channel, "gold-9", metadata=shown)
        assert code is CODE.PERMISSION_DENIED
        assert "gold-9 is in the pool gold, which is private" in words
        # Nor a name that is somebody's: who has its certificate is that node.
        await joined(head, await head.invite(NODE), "box", tmp_path)
        code, words = await refusal(channel, "box", metadata=shown)
        assert (code, "box has joined this head" in words) == (CODE.PERMISSION_DENIED, True)
        await attached(channel, "other", metadata=shown)


@pytest.mark.parametrize(
    ("wish", "name"), [({"name": "vault"}, "vault"), ({"pool": "gold"}, "gold-1")]
)
async def test_an_admin_grants_it_by_the_name_or_for_the_pool(
    head: Open, tmp_path: Path, wish: dict[str, str], name: str
) -> None:
    member = await joined(head, await head.invite(NODE, **wish), name, tmp_path)
    async with connected(member) as channel:
        await attached(channel, name)
    await renew(member)
    # The same in what the head writes down, and reads after a restart; renewals keep it.
    ledger = json.loads((head.directory / "authority" / "issued.json").read_text())
    assert [entry[4] for entry in ledger] == [["name" in wish, wish.get("pool", ""), 0, ""]]


async def test_a_token_for_a_pool_opens_no_other(head: Open, tmp_path: Path) -> None:
    token = await head.invite(NODE, pool="silver", uses=2)
    for name in ("gold-1", "box"):
        with pytest.raises(NotEnrolled, match="granted is silver, which has silver-"):
            await joined(head, token, name, tmp_path)
    await joined(head, token, "silver-1", tmp_path)


async def test_no_more_devices_than_were_admitted(head: Open, tmp_path: Path) -> None:
    member = await joined(head, await head.invite(NODE, most_devices=2), "box", tmp_path)
    async with connected(member) as channel:
        code, words = await refusal(channel, "box", slots=3)
        assert (code, "3 devices, and was admitted with at most 2" in words) == (
            CODE.PERMISSION_DENIED,
            True,
        )
        await attached(channel, "box", slots=2)


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (
            {"pool": "glod"},
            "pool = glod: expected a pool that lists its nodes, one of gold, silver",
        ),
        ({"pool": "default"}, "pool = default: expected a pool that lists its nodes"),
        (
            {"pool": "gold", "name": "box"},
            "name = box: expected another name: a node called box is in the pool default",
        ),
        ({"most_devices": -1}, "most_devices = -1: expected 1 or more"),
        ({"role": pb.IDENTITY_ROLE_USER, "pool": "gold"}, "pool = gold: expected none, since"),
    ],
)
async def test_what_cannot_be_granted_is_refused(
    head: Open, wish: dict[str, Any], words: str
) -> None:
    code, said = await status(head.invite(wish.pop("role", NODE), **wish))
    assert code is CODE.INVALID_ARGUMENT
    assert words in said


async def test_who_attached_before_by_a_name_is_refused_once_the_pool_is_private(
    tmp_path: Path,
) -> None:
    listen, reception = (f"127.0.0.1:{free_port()}" for _ in range(2))
    settings: dict[str, Any] = {"embedded": False, "listen": listen, "enroll": reception}
    for private in (False, True):
        pools = {"gold": {"nodes": ["gold-*"], "private": private}}
        async with world(tmp_path / "head", pools=pools, **settings) as up:
            system = Open(up.running, up.channel, up.control, up.nodes, up.directory)
            system.address = listen
            if not private:
                member = await joined(system, await system.invite(NODE), "gold-1", tmp_path)
            async with connected(member) as channel:
                if private:
                    assert (await refusal(channel, "gold-1"))[0] is CODE.PERMISSION_DENIED
                else:
                    await attached(channel, "gold-1")
