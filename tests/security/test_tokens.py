"""A person's token opens what that person may do, until it ends; the head keeps no words."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import enroll_pb2, enroll_pb2_grpc, node_pb2_grpc
from hermesd.security.token import Token
from tests.e2e.test_joining import Place, place
from tests.head.heads import World, by_token, request_id, status, world
from tests.study_specs import spec

assert place  # a fixture

CODE = grpc.StatusCode
USER = enroll_pb2.IDENTITY_ROLE_USER
OPERATOR = enroll_pb2.IDENTITY_ROLE_OPERATOR


class Tokened(World):
    """A head that asks for tokens, at its socket alone."""

    @property
    def admin(self) -> tuple[tuple[str, str], ...]:
        return by_token(self.directory / "token")

    @property
    def enrolling(self) -> Any:
        stub: Any = enroll_pb2_grpc.EnrollServiceStub(self.channel)
        return stub

    async def token(self, name: str, user: str, **fields: Any) -> Token:
        request = enroll_pb2.IssueTokenRequest(name=name, user=user, **{"role": USER, **fields})
        answer = await self.enrolling.IssueToken(request, metadata=self.admin)
        return Token.of(answer.text)

    async def revoke(self, token: str, by: Token) -> None:
        asked = enroll_pb2.RevokeTokenRequest(name=token)
        await self.enrolling.RevokeToken(asked, metadata=by.metadata)

    async def studies(self, token: Token) -> list[str]:
        listing = self.control.ListStudies(pb.ListStudiesRequest(), metadata=token.metadata)
        return [study.id for study in (await listing).studies]

    async def submit_as(self, token: Token, name: str) -> None:
        request = pb.SubmitStudyRequest(request_id=request_id(), spec=spec())
        request.spec.name = name
        await self.control.SubmitStudy(request, metadata=token.metadata)


@pytest.fixture
async def head(tmp_path: Path) -> AsyncIterator[Tokened]:
    async with world(tmp_path / "head", embedded=False) as up:
        yield Tokened(up.running, up.channel, up.control, up.nodes, up.directory)


async def refused(call: Any) -> grpc.StatusCode:
    return (await status(call))[0]


async def test_each_sees_their_own_and_does_what_their_role_may(head: Tokened) -> None:
    alice, bob = await head.token("a", "alice"), await head.token("b", "bob")
    for token, name in ((alice, "hers"), (bob, "his")):
        await head.submit_as(token, name)
    assert await head.studies(alice) == ["hers"]
    olga = await head.token("o", "olga", role=OPERATOR)
    assert sorted(await head.studies(olga)) == ["hers", "his"]
    drain = pb.DrainNodeRequest(request_id=request_id(), node="box")
    code, words = await status(head.control.DrainNode(drain, metadata=alice.metadata))
    assert code is CODE.PERMISSION_DENIED
    assert words == "user alice may not do this: it takes an operator or an admin"
    nodes: Any = node_pb2_grpc.NodeServiceStub(head.channel)
    attaching = nodes.Attach(metadata=alice.metadata)
    assert await refused(attaching.read()) is CODE.PERMISSION_DENIED
    mine = enroll_pb2.IssueTokenRequest(name="more", user="bob", role=USER)
    issuing = head.enrolling.IssueToken(mine, metadata=alice.metadata)
    assert await refused(issuing) is CODE.PERMISSION_DENIED


async def test_a_user_lists_and_revokes_their_own(head: Tokened) -> None:
    alice, bob = await head.token("a", "alice"), await head.token("b", "bob")
    listing = head.enrolling.ListTokens(enroll_pb2.ListTokensRequest(), metadata=bob.metadata)
    assert [(token.name, token.user) for token in (await listing).tokens] == [("b", "bob")]
    assert await refused(head.revoke("a", by=bob)) is CODE.NOT_FOUND
    await head.revoke("b", by=bob)
    assert await refused(head.studies(bob)) is CODE.UNAUTHENTICATED
    assert await head.studies(alice) == []


async def test_the_head_has_no_words(head: Tokened) -> None:
    token = await head.token("a", "alice")
    for file in head.directory.rglob("*"):
        if file.is_file():
            assert token.word.encode() not in file.read_bytes(), file
    kept = head.directory / "tokens.json"
    assert kept.stat().st_mode & 0o077 == 0
    (entry,) = json.loads(kept.read_text()).values()
    assert (entry["name"], entry["user"], entry["role"]) == ("a", "alice", "user")


async def test_a_stream_ends_with_its_token(head: Tokened) -> None:
    alice = await head.token("a", "alice")
    watching = head.control.WatchJournal(pb.WatchJournalRequest(), metadata=alice.metadata)
    await head.submit_as(alice, "first")
    assert (await watching.read()).events
    await head.revoke("a", by=alice)
    other = await head.token("a", "alice")
    await head.submit_as(other, "second")
    assert await refused(watching.read()) is CODE.UNAUTHENTICATED
    assert await head.studies(other) == ["first", "second"]


async def test_it_ends_by_itself(head: Tokened) -> None:
    token = await head.token("a", "alice", valid_seconds=2)

    async def always() -> None:
        while True:
            assert await head.studies(token) == []

    assert await refused(always()) is CODE.UNAUTHENTICATED
    listing = head.enrolling.ListTokens(enroll_pb2.ListTokensRequest(), metadata=head.admin)
    assert not (await listing).tokens


async def test_whose_access_is_revoked_has_no_token_left(head: Tokened) -> None:
    alice, bob = await head.token("a", "alice"), await head.token("b", "bob")
    asked = enroll_pb2.RevokeRequest(role=USER, name="alice")
    await head.enrolling.Revoke(asked, metadata=head.admin)
    assert await refused(head.studies(alice)) is CODE.UNAUTHENTICATED
    assert await head.studies(bob) == []


async def test_it_outlives_the_head_and_the_audit_has_which_was_used(tmp_path: Path) -> None:
    token = None
    for name in ("first", "second"):
        async with world(tmp_path / "head", embedded=False) as up:
            head = Tokened(up.running, up.channel, up.control, up.nodes, up.directory)
            token = token or await head.token("laptop", "alice")
            await head.submit_as(token, name)
            answer = await up.control.ListAudit(pb.ListAuditRequest(), metadata=head.admin)
            newest = answer.entries[0]
            assert (newest.name, newest.shown) == ("alice", "token laptop")
            assert newest.subject == f"name {name}"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "A b"}, "name = A b: expected 1 to 63 of a-z"),
        ({"user": ""}, "user: expected 1 to 63 of a-z"),
        ({"role": enroll_pb2.IDENTITY_ROLE_NODE}, "role = node: expected user, operator or admin"),
        ({"valid_seconds": -1}, "valid_seconds = -1: expected more than 0"),
        ({"valid_seconds": 1e9}, "valid_seconds = 1e+09: expected more than 0"),
    ],
)
async def test_what_cannot_be_made_is_refused(
    head: Tokened, fields: dict[str, Any], words: str
) -> None:
    code, said = await status(head.token(**{"name": "a", "user": "alice", **fields}))
    assert code is CODE.INVALID_ARGUMENT
    assert said.startswith(words)
    await head.token("a", "alice")
    assert await refused(head.token("a", "bob")) is CODE.ALREADY_EXISTS


async def test_an_embedded_head_makes_none(tmp_path: Path) -> None:
    async with world(tmp_path) as up:
        stub: Any = enroll_pb2_grpc.EnrollServiceStub(up.channel)
        asked = enroll_pb2.IssueTokenRequest(name="a", user="alice", role=USER)
        code, words = await status(stub.IssueToken(asked))
        assert (code, words.startswith("an embedded head asks nobody")) == (
            CODE.FAILED_PRECONDITION,
            True,
        )


@pytest.mark.timeout(120)
def test_the_commands_that_people_type_at_the_socket_and_at_a_port(place: Place) -> None:
    del place.environment["HERMES_HEAD_ENROLL"]
    file = place.folder / "alice.token"
    with place.daemon("head"):
        place.ctl("token", "create", "laptop", "--user", "alice", "--to", str(file), admin=True)
        assert file.stat().st_mode & 0o777 == 0o600
        listed = json.loads(place.ctl("token", "ls", "-o", "json", admin=True))["tokens"]
        assert [(one["name"], one["user"]) for one in listed] == [("laptop", "alice")]
        assert "laptop  alice  user" in place.ctl("token", "ls", admin=True)
        place.environment["HERMES_TOKEN_FILE"] = str(file)
        for address in (place.address, f"unix:{place.folder}/head/head.sock"):
            shown = json.loads(place.ctl("--head", address, "token", "ls", "-o", "json"))
            assert [one["name"] for one in shown["tokens"]] == ["laptop"]
        with pytest.raises(AssertionError, match="it takes an admin"):
            place.ctl("--head", address, "token", "create", "more", "--user", "eve")
        place.ctl("--head", address, "token", "revoke", "laptop", "-y")
        with pytest.raises(AssertionError, match="a valid token is needed"):
            place.ctl("--head", address, "study", "ls")
