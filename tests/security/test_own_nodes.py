"""What a user brings runs that user's trials; nothing of anybody else's ever comes to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from hermesd.core.model import Phase
from hermesd.head.api import enroll as enrolling
from hermesd.pb.hermes.v1 import control_pb2, control_pb2_grpc, enroll_pb2_grpc, node_pb2_grpc
from hermesd.pb.hermes.v1 import enroll_pb2 as pb
from hermesd.security.enrollment import Membership, enroll
from hermesd.security.identity import NotEnrolled
from tests.head.heads import Node, World, request_id, status
from tests.head.test_enroll import Open, connected
from tests.security.test_private_pools import head
from tests.study_specs import spec

assert head  # a fixture

CODE = grpc.StatusCode
NODE = pb.IDENTITY_ROLE_NODE
ONE = {"lr": {"value": 1.0}}


class Person:
    """A user, and what they call."""

    def __init__(self, head: Open, channel: grpc.aio.Channel, folder: Path) -> None:
        self.head = head
        self.control: Any = control_pb2_grpc.ControlServiceStub(channel)
        self.enrolling: Any = enroll_pb2_grpc.EnrollServiceStub(channel)
        self.folder = folder

    async def invite(self, role: pb.IdentityRole = NODE, **fields: Any) -> str:
        return str((await self.enrolling.Invite(pb.InviteRequest(role=role, **fields))).token)

    async def join(self, name: str, token: str = "") -> Membership:
        token = token or await self.invite()
        return await asyncio.to_thread(enroll, self.head.address, token, name, self.folder / name)

    async def submit(self, name: str, pool: str = "") -> str:
        request = control_pb2.SubmitStudyRequest(request_id=request_id(), spec=spec(ONE, pool=pool))
        request.spec.name = name
        return str((await self.control.SubmitStudy(request)).trials[0].id)


@pytest.fixture
async def people(head: Open, tmp_path: Path) -> AsyncIterator[tuple[Person, Person]]:
    async with AsyncExitStack() as stack:
        found = []
        for name in ("alice", "bob"):
            member = await head.member(pb.IDENTITY_ROLE_USER, name, tmp_path / name)
            channel = await stack.enter_async_context(connected(member))
            found.append(Person(head, channel, tmp_path / f"{name}-nodes"))
        yield found[0], found[1]


async def welcomed(channel: grpc.aio.Channel, name: str) -> Node:
    stub: Any = node_pb2_grpc.NodeServiceStub(channel)
    node = Node(World(None, channel, None, stub, Path()), name, slots=4)  # type: ignore[arg-type]
    await node.hello()
    return node


async def test_it_is_given_its_owners_trials_alone(
    head: Open, people: tuple[Person, Person]
) -> None:
    alice, bob = people
    async with connected(await alice.join("hers")) as channel:
        node = await welcomed(channel, "hers")
        assert head.state.nodes["hers"].pool == "own.alice"
        waiting = [await bob.submit("shared"), await bob.submit("his", pool="own")]
        waiting.append(await alice.submit("in-the-default-pool"))
        hers = await alice.submit("on-hers", pool="own")
        assert (await node.start()).trial == hers
        await node.settle()
        assert {head.state.trials[trial].phase for trial in waiting} == {Phase.WAITING}
        for theirs in ("own.alice", "own.carol", "own."):
            code, words = await status(bob.submit("taken", pool=theirs))
            assert (code, "expected one of default, gold, own" in words) == (
                CODE.INVALID_ARGUMENT,
                True,
            )
        assert await alice.submit("by-its-name", pool="own.alice")


@pytest.mark.parametrize(
    "wish",
    [
        {"role": pb.IDENTITY_ROLE_USER, "name": "eve"},
        {"role": pb.IDENTITY_ROLE_ADMIN},
        {"pool": "gold"},
        {"pool": "silver", "own": True},
    ],
)
async def test_a_user_invites_nothing_else(
    people: tuple[Person, Person], wish: dict[str, Any]
) -> None:
    code, words = await status(people[0].invite(**wish))
    assert code is CODE.PERMISSION_DENIED
    assert words == (
        "user alice may invite only nodes for their own trials: anything else takes an admin"
    )


async def test_it_takes_no_name_of_others(
    head: Open, people: tuple[Person, Person], tmp_path: Path
) -> None:
    alice, bob = people
    await asyncio.to_thread(enroll, head.address, await head.invite(NODE), "box", tmp_path / "box")
    await bob.join("his")
    for name in ("box", "his", "gold-1", "silver-1"):
        assert (await status(alice.invite(name=name)))[0] is CODE.INVALID_ARGUMENT
        with pytest.raises(NotEnrolled, match=r"there is a node|is for nodes of the pool"):
            await alice.join(name)
    await alice.join("hers")
    await alice.join("hers", await alice.invite(name="hers"))


async def test_each_ends_their_own(head: Open, people: tuple[Person, Person]) -> None:
    alice, bob = people
    async with connected(await alice.join("hers")) as channel:
        node = await welcomed(channel, "hers")
        revoking = pb.RevokeRequest(role=NODE, name="hers")
        assert (await status(bob.enrolling.Revoke(revoking)))[0] is CODE.PERMISSION_DENIED
        for role in (pb.IDENTITY_ROLE_USER, pb.IDENTITY_ROLE_ADMIN):
            theirs = pb.RevokeRequest(role=role, name="alice")
            assert (await status(bob.enrolling.Revoke(theirs)))[0] is CODE.PERMISSION_DENIED
        await alice.enrolling.Revoke(revoking)
        await node.ended()


async def test_nobody_keeps_the_others_from_inviting(people: tuple[Person, Person]) -> None:
    alice, bob = people
    for _ in range(100):
        await alice.invite()
    code, words = await status(alice.invite())
    assert (code, words) == (
        CODE.RESOURCE_EXHAUSTED,
        "alice has 100 open tokens for nodes, as many as one user may: wait until some have been"
        " used or have ended",
    )
    assert (await status(bob.invite(uses=257)))[0] is CODE.INVALID_ARGUMENT
    assert await bob.invite(uses=256)


async def test_those_of_one_user_say_no_more_than_one_node_may(
    head: Open, people: tuple[Person, Person], tmp_path: Path
) -> None:
    alice, bob = people
    async with AsyncExitStack() as stack:
        for who, name in ((alice, "hers"), (alice, "hers-too"), (bob, "his"), (None, "own.bob")):
            joining = who.join(name) if who else head.member(NODE, name, tmp_path / name)
            channel = await stack.enter_async_context(connected(await joining))
            await welcomed(channel, name)
        rate_limit = head.running.sessions.rate_limit
        assert rate_limit("hers") is rate_limit("hers-too")
        assert len({id(rate_limit(name)) for name in ("hers", "his", "own.bob")}) == 3


async def test_nobody_takes_more_names_than_one_user_may(
    head: Open, people: tuple[Person, Person], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enrolling, "MOST_NODES_OF_ONE", 2)
    alice, bob = people
    for name in ("hers", "hers-too"):
        await alice.join(name)
    with pytest.raises(NotEnrolled, match="alice has 2 nodes of their own, as many as one user"):
        await alice.join("a-third")
    await alice.join("hers", await alice.invite(name="hers"))
    await bob.join("his")
    await asyncio.to_thread(
        enroll, head.address, await head.invite(NODE), "box", bob.folder / "box"
    )
    await alice.enrolling.Revoke(pb.RevokeRequest(role=NODE, name="hers"))
    await alice.join("a-third")


async def test_invitations_that_are_used_up_do_not_pile_up(
    head: Open, people: tuple[Person, Person], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enrolling, "OPEN_LIMIT_OF_ONE", 2)
    alice, _ = people
    for _ in range(6):
        await alice.join("hers", await alice.invite(name="hers"))
    known = json.loads((head.directory / "invitations.json").read_text())
    assert sum("alice" in entry for entry in known) <= 4


async def test_it_is_not_asked_for_files_of_anybody_elses_trials(
    head: Open, people: tuple[Person, Person], tmp_path: Path
) -> None:
    """What it sent would be taken for what the trial wrote."""
    alice, bob = people
    async with connected(await head.member(NODE, "shared", tmp_path / "shared")) as channel:
        node = await welcomed(channel, "shared")
        trial = await alice.submit("hers")
        assert (await node.start()).trial == trial
        await node.settle()
        node.call.cancel()
    async with connected(await bob.join("his")) as channel:
        await welcomed(channel, "his")
        for call in (
            alice.control.GetFiles(control_pb2.GetFilesRequest(trial=trial), timeout=10),
            alice.control.TailLogs(control_pb2.TailLogsRequest(trial=trial), timeout=10),
        ):
            with pytest.raises(grpc.aio.AioRpcError, match="on node shared, which is not attac"):
                await call.read()
