"""How a machine or a person comes to a certificate, what it opens, and how it ends."""

from __future__ import annotations

import asyncio
import datetime
import os
import socket
import ssl
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding

import hermesd
from hermesd.config.schema import NodeConfig
from hermesd.head.security import roots
from hermesd.head.security.authority import Authority
from hermesd.head.security.guard import token
from hermesd.head.security.listen import reached_at
from hermesd.node import head_link
from hermesd.node.outbox import Outbox
from hermesd.pb.hermes.v1 import control_pb2 as control
from hermesd.pb.hermes.v1 import control_pb2_grpc, enroll_pb2_grpc, node_pb2, node_pb2_grpc
from hermesd.pb.hermes.v1 import enroll_pb2 as pb
from hermesd.security.enrollment import Membership, channel_options, enroll
from hermesd.security.identity import Identity, Invitation, NotEnrolled, Role, identity_of, uri_of
from tests.head.heads import Node, World, by_token, cancelled, status, world
from tests.head.test_transport import free_port

CODE = grpc.StatusCode
BOX = Identity(Role.NODE, "box")


class Open(World):
    """A head that other machines may join."""

    address: str

    @property
    def admin(self) -> tuple[tuple[str, str], ...]:
        return by_token(self.directory / "token")

    async def invite(self, role: pb.IdentityRole, name: str = "", **fields: Any) -> str:
        stub: Any = enroll_pb2_grpc.EnrollServiceStub(self.channel)
        request = pb.InviteRequest(role=role, name=name, **fields)
        answer = await stub.Invite(request, metadata=self.admin)
        return str(answer.token)

    async def member(self, role: pb.IdentityRole, name: str, folder: Path) -> Membership:
        token = await self.invite(role, name)
        return await asyncio.to_thread(enroll, self.address, token, name, folder)


@pytest.fixture
async def head(tmp_path: Path) -> AsyncIterator[Open]:
    listen, reception = (f"127.0.0.1:{free_port()}" for _ in range(2))
    async with world(tmp_path / "head", embedded=False, listen=listen, enroll=reception) as up:
        system = Open(up.running, up.channel, up.control, up.nodes, up.directory)
        system.address = listen
        yield system


@asynccontextmanager
async def connected(membership: Membership) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.secure_channel(
        membership.head, membership.credentials(), options=channel_options()
    ) as channel:
        yield channel


async def info(channel: grpc.aio.Channel) -> Any:
    stub: Any = control_pb2_grpc.ControlServiceStub(channel)
    return await stub.ServerInfo(control.ServerInfoRequest(), timeout=10)


async def attached(channel: grpc.aio.Channel, name: str, **fields: Any) -> Node:
    """A node that has been welcomed under `name`."""
    stub: Any = node_pb2_grpc.NodeServiceStub(channel)
    node = Node(World(None, channel, None, stub, Path()), name, **fields)  # type: ignore[arg-type]
    await node.hello()
    return node


async def test_a_machine_joins_and_attaches_under_its_own_name_alone(
    head: Open, tmp_path: Path
) -> None:
    box = await head.member(pb.IDENTITY_ROLE_NODE, "box", tmp_path / "box")
    assert box.identity == Identity(Role.NODE, "box")
    for file in box.folder.iterdir():
        assert file.stat().st_mode & 0o077 == 0
    async with connected(box) as channel:
        node = await attached(channel, "box")
        node.call.cancel()
        with pytest.raises(grpc.aio.AioRpcError, match="box, as its certificate"):
            await attached(channel, "other")
        code, words = await status(info(channel))
        assert code is CODE.PERMISSION_DENIED
        assert words.endswith("node box may not do this")


async def test_a_person_logs_in_and_only_an_admin_invites(head: Open, tmp_path: Path) -> None:
    alice = await head.member(pb.IDENTITY_ROLE_USER, "alice", tmp_path / "alice")
    root = await head.member(pb.IDENTITY_ROLE_ADMIN, "root", tmp_path / "root")
    invitation = pb.InviteRequest(role=pb.IDENTITY_ROLE_USER)
    async with connected(alice) as channel:
        assert (await info(channel)).version
        stub: Any = enroll_pb2_grpc.EnrollServiceStub(channel)
        assert (await status(stub.Invite(invitation)))[0] is CODE.PERMISSION_DENIED
        with pytest.raises(grpc.aio.AioRpcError, match="user alice may not"):
            await attached(channel, "alice")
    async with connected(root) as channel:
        stub = enroll_pb2_grpc.EnrollServiceStub(channel)
        assert (await stub.Invite(invitation)).address == head.address
        listed = await stub.ListIdentities(pb.ListIdentitiesRequest())
        assert [(one.name, one.role) for one in listed.identities] == [
            ("alice", pb.IDENTITY_ROLE_USER),
            ("root", pb.IDENTITY_ROLE_ADMIN),
        ]


async def test_an_invitation_is_good_once_for_whom_and_as_long_as_it_says(
    head: Open, tmp_path: Path
) -> None:
    token = await head.invite(pb.IDENTITY_ROLE_NODE, "box")
    with pytest.raises(NotEnrolled, match="for the node box, not for other: say --name box"):
        await asyncio.to_thread(enroll, head.address, token, "other", tmp_path / "a")
    assert not (tmp_path / "a").exists()
    await asyncio.to_thread(enroll, head.address, token, "box", tmp_path / "b")
    with pytest.raises(NotEnrolled, match="was used"):
        await asyncio.to_thread(enroll, head.address, token, "box", tmp_path / "c")
    short = await head.invite(pb.IDENTITY_ROLE_NODE, valid_seconds=1e-9)
    with pytest.raises(NotEnrolled, match="too old"):
        await asyncio.to_thread(enroll, head.address, short, "box", tmp_path / "d")


async def test_an_invitation_of_several_nodes_is_good_for_so_many(
    head: Open, tmp_path: Path
) -> None:
    token = await head.invite(pb.IDENTITY_ROLE_NODE, uses=2)
    for name in ("a", "b"):
        await asyncio.to_thread(enroll, head.address, token, name, tmp_path / name)
    with pytest.raises(NotEnrolled, match="was used"):
        await asyncio.to_thread(enroll, head.address, token, "c", tmp_path / "c")


async def test_only_nodes_of_any_name_are_invited_by_the_dozen(head: Open) -> None:
    for role, name, uses in (
        (pb.IDENTITY_ROLE_NODE, "box", 2),
        (pb.IDENTITY_ROLE_USER, "", 2),
        (pb.IDENTITY_ROLE_NODE, "", 10_001),
        (pb.IDENTITY_ROLE_NODE, "", -1),
    ):
        code, words = await status(head.invite(role, name, uses=uses))
        assert (code, words[:5]) == (CODE.INVALID_ARGUMENT, "uses ")


async def test_the_certificate_of_a_node_that_left_for_good_opens_nothing(
    head: Open, tmp_path: Path
) -> None:
    box = await head.member(pb.IDENTITY_ROLE_NODE, "box", tmp_path / "box")
    async with connected(box) as channel:
        node = await attached(channel, "box")
        goodbye = node_pb2.Goodbye(reason="done", for_good=True)
        await node.call.write(node_pb2.AttachRequest(goodbye=goodbye))
        await node.ended()
        with pytest.raises(grpc.aio.AioRpcError, match="of node box is no longer valid"):
            await attached(channel, "box")
    token = await head.invite(pb.IDENTITY_ROLE_NODE)
    await asyncio.to_thread(enroll, head.address, token, "box", tmp_path / "again")


async def test_nobody_takes_the_name_of_another_by_an_open_invitation(
    head: Open, tmp_path: Path
) -> None:
    box = await head.member(pb.IDENTITY_ROLE_NODE, "box", tmp_path / "box")
    token = await head.invite(pb.IDENTITY_ROLE_NODE)
    with pytest.raises(
        NotEnrolled, match=r"is a node box already.*`hermesctl node token --name box`"
    ):
        await asyncio.to_thread(enroll, head.address, token, "box", tmp_path / "thief")
    async with connected(box) as channel:
        (await attached(channel, "box")).call.cancel()
    await asyncio.to_thread(enroll, head.address, token, "other", tmp_path / "other")


async def test_a_token_leads_to_its_own_head_alone(head: Open, tmp_path: Path) -> None:
    with pytest.raises(NotEnrolled, match="the token is incomplete"):
        enroll(head.address, "nonsense", "box", tmp_path / "a")
    token = await head.invite(pb.IDENTITY_ROLE_NODE)
    with pytest.raises(NotEnrolled, match="the token is incomplete"):
        enroll(head.address, token[:-3], "box", tmp_path / "a")
    read = Invitation.of(token)
    stranger = Authority(tmp_path / "stranger").roots_pem
    der = x509.load_pem_x509_certificate(stranger).public_bytes(Encoding.DER)
    other = Invitation(read.secret, read.port, der).token()
    with pytest.raises(NotEnrolled, match="not the one that the token is from"):
        await asyncio.to_thread(enroll, head.address, other, "box", tmp_path / "a")
    await asyncio.to_thread(enroll, head.address, token, "box", tmp_path / "a")


async def test_a_token_is_not_used_up_at_an_address_where_the_head_does_not_listen(
    head: Open, tmp_path: Path
) -> None:
    token = await head.invite(pb.IDENTITY_ROLE_NODE, "box")
    read = Invitation.of(token)
    for port, why in (
        (free_port(), "no head answers there, or not the one"),
        (read.port, "where tokens are redeemed; expected the address that the head's `listen` has"),
        (70_000, "no head answers there"),
    ):
        with pytest.raises(NotEnrolled, match=f"127.0.0.1:{port}: .*{why}.*token was not used"):
            await asyncio.to_thread(enroll, f"127.0.0.1:{port}", token, "box", tmp_path / "a")
    await asyncio.to_thread(enroll, head.address, token, "box", tmp_path / "a")


async def test_a_machines_token_is_no_persons_and_the_other_way_round(
    head: Open, tmp_path: Path
) -> None:
    node = await head.invite(pb.IDENTITY_ROLE_NODE)
    person = await head.invite(pb.IDENTITY_ROLE_USER, "alice")
    with pytest.raises(NotEnrolled, match="for a new node: `hermesd node join` redeems it; the to"):
        await asyncio.to_thread(enroll, head.address, node, "alice", tmp_path / "a", False)
    with pytest.raises(NotEnrolled, match="for the user alice: `hermesctl login` redeems it"):
        await asyncio.to_thread(enroll, head.address, person, "box", tmp_path / "a", True)
    with pytest.raises(NotEnrolled, match="for the user alice, not for root: say --user alice"):
        await asyncio.to_thread(enroll, head.address, person, "root", tmp_path / "a", False)
    await asyncio.to_thread(enroll, head.address, person, "alice", tmp_path / "a", False)
    await asyncio.to_thread(enroll, head.address, node, "alice", tmp_path / "b", True)


@pytest.mark.parametrize("listen", ["10.0.0.1:7411", "gpu1.example.org:7411", "[fd00::1]:7411"])
def test_a_head_that_names_an_address_is_reached_there(listen: str) -> None:
    assert reached_at(listen) == listen


@pytest.mark.parametrize("listen", ["0.0.0.0:7411", "[::]:7411"])
def test_a_head_that_listens_everywhere_names_an_address_that_leads_to_it(listen: str) -> None:
    host, _, port = reached_at(listen).rpartition(":")
    assert (host not in ("0.0.0.0", "[::]"), port) == (True, "7411")
    assert socket.getaddrinfo(host, None), "of an address, or a name"


async def test_a_token_is_not_used_up_where_there_is_no_place_for_what_it_brings(
    head: Open, tmp_path: Path
) -> None:
    token = await head.invite(pb.IDENTITY_ROLE_NODE, "box")
    (tmp_path / "file").touch()
    with pytest.raises(NotEnrolled, match=r"file/a cannot be made .*the token was not used"):
        await asyncio.to_thread(enroll, head.address, token, "box", tmp_path / "file" / "a")
    await asyncio.to_thread(enroll, head.address, token, "box", tmp_path / "b")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files that others may not read")
async def test_root_does_not_join_for_a_daemon_of_another_account(
    head: Open, tmp_path: Path
) -> None:
    token = await head.invite(pb.IDENTITY_ROLE_NODE, "box")
    os.chown(tmp_path, 65534, 65534)
    with pytest.raises(NotEnrolled, match=f"{tmp_path} belongs to nobody.*sudo -u nobody"):
        await asyncio.to_thread(
            enroll, head.address, token, "box", tmp_path / "node" / "membership"
        )
    assert not (tmp_path / "node").exists()


async def test_who_is_revoked_or_enrolled_anew_is_out_at_once(head: Open, tmp_path: Path) -> None:
    first = await head.member(pb.IDENTITY_ROLE_USER, "alice", tmp_path / "first")
    second = await head.member(pb.IDENTITY_ROLE_USER, "alice", tmp_path / "second")
    async with connected(first) as channel:
        code, words = await status(info(channel))
        assert code is CODE.UNAUTHENTICATED
        assert "alice is no longer valid" in words
    async with connected(second) as channel:
        assert (await info(channel)).version
        stub: Any = enroll_pb2_grpc.EnrollServiceStub(head.channel)
        request = pb.RevokeRequest(role=pb.IDENTITY_ROLE_USER, name="alice")
        await stub.Revoke(request, metadata=head.admin)
        assert (await status(info(channel)))[0] is CODE.UNAUTHENTICATED
        again = await status(stub.Revoke(request, metadata=head.admin))
        assert again[0] is CODE.NOT_FOUND


async def test_who_is_revoked_does_not_come_by_a_token_that_was_not_redeemed(
    head: Open, tmp_path: Path
) -> None:
    alice = await head.invite(pb.IDENTITY_ROLE_USER, "alice")
    bob = await head.invite(pb.IDENTITY_ROLE_USER, "bob")
    stub: Any = enroll_pb2_grpc.EnrollServiceStub(head.channel)
    request = pb.RevokeRequest(role=pb.IDENTITY_ROLE_USER, name="alice")
    await stub.Revoke(request, metadata=head.admin)
    with pytest.raises(NotEnrolled, match="was used, or is too old"):
        await asyncio.to_thread(enroll, head.address, alice, "alice", tmp_path / "alice")
    await asyncio.to_thread(enroll, head.address, bob, "bob", tmp_path / "bob")
    assert (await status(stub.Revoke(request, metadata=head.admin)))[0] is CODE.NOT_FOUND
    anybody = pb.RevokeRequest(role=pb.IDENTITY_ROLE_NODE)
    code, words = await status(stub.Revoke(anybody, metadata=head.admin))
    assert (code, words[:4]) == (CODE.INVALID_ARGUMENT, "name")


async def test_what_a_join_makes_is_its_own_account_s(head: Open, tmp_path: Path) -> None:
    """The daemon keeps its trials' files there, too."""
    await head.member(pb.IDENTITY_ROLE_NODE, "box", tmp_path / "var" / "node" / "membership")
    made = ("var", "var/node", "var/node/membership")
    assert {stat.S_IMODE((tmp_path / each).stat().st_mode) for each in made} == {0o700}


async def test_a_token_can_be_taken_back(head: Open, tmp_path: Path) -> None:
    """It is for nodes of any name, so that no name would find it."""
    token = await head.invite(pb.IDENTITY_ROLE_NODE, "")
    other = await head.invite(pb.IDENTITY_ROLE_NODE, "")
    stub: Any = enroll_pb2_grpc.EnrollServiceStub(head.channel)
    await stub.Revoke(pb.RevokeRequest(token=token), metadata=head.admin)
    with pytest.raises(NotEnrolled, match="was used, or is too old"):
        await asyncio.to_thread(enroll, head.address, token, "box", tmp_path / "box")
    again = await status(stub.Revoke(pb.RevokeRequest(token=token), metadata=head.admin))
    assert again == (CODE.NOT_FOUND, "no such token is open: it was used up, or has ended")
    code, words = await status(stub.Revoke(pb.RevokeRequest(token="x"), metadata=head.admin))
    assert (code, words[:5]) == (CODE.INVALID_ARGUMENT, "token")
    await asyncio.to_thread(enroll, head.address, other, "box", tmp_path / "box")


async def test_who_is_revoked_hears_nothing_more_by_a_stream_that_is_open(
    head: Open, tmp_path: Path
) -> None:
    alice = await head.member(pb.IDENTITY_ROLE_USER, "alice", tmp_path / "alice")
    box = await head.member(pb.IDENTITY_ROLE_NODE, "box", tmp_path / "box")
    async with connected(alice) as hers, connected(box) as channel:
        watching = control_pb2_grpc.ControlServiceStub(hers).WatchJournal(
            control.WatchJournalRequest()
        )
        node = await attached(channel, "box")
        (joined,) = (await watching.read()).events
        assert joined.kind == control.PUBLIC_EVENT_KIND_NODE_JOINED
        stub: Any = enroll_pb2_grpc.EnrollServiceStub(head.channel)
        request = pb.RevokeRequest(role=pb.IDENTITY_ROLE_USER, name="alice")
        await stub.Revoke(request, metadata=head.admin)
        node.call.cancel()
        assert (await status(watching.read()))[0] is CODE.UNAUTHENTICATED


async def test_a_node_that_is_revoked_is_let_go(head: Open, tmp_path: Path) -> None:
    box = await head.member(pb.IDENTITY_ROLE_NODE, "box", tmp_path / "box")
    async with connected(box) as channel:
        node = await attached(channel, "box")
        stub: Any = enroll_pb2_grpc.EnrollServiceStub(head.channel)
        request = pb.RevokeRequest(role=pb.IDENTITY_ROLE_NODE, name="box")
        await stub.Revoke(request, metadata=head.admin)
        await node.ended()
        with pytest.raises(grpc.aio.AioRpcError, match="node box is no longer valid"):
            await attached(channel, "box")


async def test_who_is_enrolled_anew_is_not_heard_by_the_stream_of_before(
    head: Open, tmp_path: Path
) -> None:
    stolen = await head.member(pb.IDENTITY_ROLE_NODE, "box", tmp_path / "stolen")
    async with connected(stolen) as channel:
        thief = await attached(channel, "box")
        box = await head.member(pb.IDENTITY_ROLE_NODE, "box", tmp_path / "box")
        await thief.call.write(node_pb2.AttachRequest(heartbeat=node_pb2.Heartbeat()))
        code, words = await status(thief.ended())
        assert code is CODE.UNAUTHENTICATED
        assert "node box is no longer valid" in words
    async with connected(box) as channel:
        await attached(channel, "box")


async def test_members_and_invitations_outlive_the_head(tmp_path: Path) -> None:
    listen, reception = (f"127.0.0.1:{free_port()}" for _ in range(2))
    settings: dict[str, Any] = {"embedded": False, "listen": listen, "enroll": reception}
    async with world(tmp_path / "head", **settings) as up:
        system = Open(up.running, up.channel, up.control, up.nodes, up.directory)
        system.address = listen
        box = await system.member(pb.IDENTITY_ROLE_NODE, "box", tmp_path / "box")
        token = await system.invite(pb.IDENTITY_ROLE_USER)
    async with world(tmp_path / "head", **settings):
        async with connected(box) as channel:
            (await attached(channel, "box")).call.cancel()
        await asyncio.to_thread(enroll, listen, token, "bob", tmp_path / "bob")


async def test_a_node_whose_clock_is_far_ahead_renews_once_and_stays(
    head: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await head.member(pb.IDENTITY_ROLE_NODE, "box", tmp_path / "node" / "membership")

    def now(zone: datetime.tzinfo) -> datetime.datetime:
        return datetime.datetime.now(zone) + datetime.timedelta(days=80)

    ahead = SimpleNamespace(datetime=SimpleNamespace(now=now), UTC=datetime.UTC)
    monkeypatch.setattr(head_link, "datetime", ahead)
    config = NodeConfig(state_dir=tmp_path / "node", cpu_slots=())
    before = (box.folder / "member.crt").read_bytes()
    welcomes, leases, over = 0, 0, asyncio.Event()

    def heard(response: node_pb2.AttachResponse) -> None:
        nonlocal welcomes, leases
        is_welcome = response.HasField("welcome")
        welcomes, leases = welcomes + is_welcome, 0 if is_welcome else leases + 1
        if leases == 2 and (box.folder / "member.crt").read_bytes() != before:
            over.set()

    hello = node_pb2.Hello(node="box", boot_id="b", version=hermesd.__version__)
    dialling = head_link.Link(config, Outbox())
    conversation = SimpleNamespace(hello=lambda: node_pb2.AttachRequest(hello=hello), hear=heard)
    running = asyncio.get_running_loop().create_task(dialling.run(conversation))
    await over.wait()
    assert welcomes == 2, "the stream of the new certificate lasts"
    await cancelled(running)
    await dialling.close()


@pytest.mark.parametrize("damaged", ["member.crt.partial", "member.crt", "member.key"])
async def test_a_certificate_that_cannot_be_renewed_costs_no_stream(
    damaged: str, head: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As nothing can be written in its place, or what it is renewed with is damaged by now."""
    box = await head.member(pb.IDENTITY_ROLE_NODE, "box", tmp_path / "node" / "membership")

    def now(zone: datetime.tzinfo) -> datetime.datetime:
        return datetime.datetime.now(zone) + datetime.timedelta(days=80)

    ahead = SimpleNamespace(datetime=SimpleNamespace(now=now), UTC=datetime.UTC)
    monkeypatch.setattr(head_link, "datetime", ahead)
    monkeypatch.setattr(head_link, "_RENEWAL_AGAIN_SECONDS", 0.01)
    config = NodeConfig(state_dir=tmp_path / "node", cpu_slots=())
    said: list[str] = []
    over = asyncio.Event()

    def heard(response: node_pb2.AttachResponse) -> None:
        said.append("lease" if response.HasField("lease") else str(response.WhichOneof("message")))
        if said.count("lease") == 2:
            over.set()

    hello = node_pb2.Hello(node="box", boot_id="b", version=hermesd.__version__)
    dialling = head_link.Link(config, Outbox())
    conversation = SimpleNamespace(hello=lambda: node_pb2.AttachRequest(hello=hello), hear=heard)
    kept = tmp_path / "kept"
    if (box.folder / damaged).exists():
        (box.folder / damaged).rename(kept)
    (box.folder / damaged).mkdir()
    with structlog.testing.capture_logs() as logs:
        running = asyncio.get_running_loop().create_task(dialling.run(conversation))
        await over.wait()
        await cancelled(running)
    await dialling.close()
    assert said.count("welcome") == 1
    failed = [line["reason"] for line in logs if line["event"] == "certificate not renewed"]
    assert len(failed) > 1
    assert damaged in failed[0]
    (box.folder / damaged).rmdir()
    if kept.exists():
        kept.rename(box.folder / damaged)
    async with connected(box) as channel:
        assert (await status(info(channel)))[0] is CODE.PERMISSION_DENIED, "it is still known"


def test_a_clock_of_the_head_that_is_ahead_locks_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as past:
        past.setattr(roots, "_BEFORE", datetime.timedelta(days=30))
        born = x509.load_pem_x509_certificate(Authority(tmp_path).roots_pem).not_valid_before_utc
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    signed = Authority(tmp_path).issue(BOX, request.sign(key, hashes.SHA256()))
    certificate = Authority(tmp_path).server_files().certificate
    for each in (signed, certificate):
        assert x509.load_pem_x509_certificate(each).not_valid_before_utc == born


async def test_a_head_without_other_machines_invites_nobody(tmp_path: Path) -> None:
    async with world(tmp_path) as up:
        stub: Any = enroll_pb2_grpc.EnrollServiceStub(up.channel)
        code, words = await status(stub.Invite(pb.InviteRequest(role=pb.IDENTITY_ROLE_NODE)))
        assert code is CODE.FAILED_PRECONDITION
        assert "listen = HOST:PORT" in words


async def test_a_head_on_loopback_says_what_there_is_to_set(tmp_path: Path) -> None:
    """Whoever tries things out on one machine meets it first."""
    port = free_port()
    async with world(tmp_path, embedded=False, listen=f"127.0.0.1:{port}") as up:
        stub: Any = enroll_pb2_grpc.EnrollServiceStub(up.channel)
        admin = (("authorization", f"Bearer {token(tmp_path / 'token')}"),)
        invite = stub.Invite(pb.InviteRequest(role=pb.IDENTITY_ROLE_NODE), metadata=admin)
        code, words = await status(invite)
        assert code is CODE.FAILED_PRECONDITION
        assert f"no other machine can reach listen = 127.0.0.1:{port}: give it an address" in words
        assert f'enroll = "127.0.0.1:{port + 1}" beside it' in words


@pytest.mark.parametrize("role", list(Role))
def test_identities_are_read_as_they_are_written(role: Role) -> None:
    assert identity_of(uri_of(Identity(role, "box"))) == Identity(role, "box")
    for text in ("", "hermes://", "hermes://king/box", "hermes://node/", "https://node/box"):
        assert identity_of(text) is None


async def asked(head: Open, secret: bytes, signing_request: bytes) -> tuple[grpc.StatusCode, str]:
    """How an enrollment is refused."""
    stub: Any = enroll_pb2_grpc.EnrollServiceStub(head.channel)
    request = pb.EnrollRequest(secret=secret, name="box", signing_request=signing_request)
    return await status(stub.Enroll(request))


async def test_nothing_is_parsed_for_who_has_no_invitation(
    head: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parsed(pem: bytes) -> Any:
        raise AssertionError("it was parsed")

    monkeypatch.setattr(x509, "load_pem_x509_csr", parsed)
    code, words = await asked(head, b"guessed", b"anything")
    assert code is CODE.FAILED_PRECONDITION
    assert words.startswith("the token was used, or is too old")
    # Nor is what no signing request is as large as.
    secret = Invitation.of(await head.invite(pb.IDENTITY_ROLE_NODE)).secret
    code, words = await asked(head, secret, b"x" * 5000)
    assert code is CODE.INVALID_ARGUMENT
    assert "signing_request" in words


async def test_a_key_of_another_kind_is_refused_and_the_invitation_stays_good(
    head: Open, tmp_path: Path
) -> None:
    token = await head.invite(pb.IDENTITY_ROLE_NODE)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    named = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    pem = named.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    code, words = await asked(head, Invitation.of(token).secret, pem)
    assert (code, "for a P-256 key" in words) == (CODE.INVALID_ARGUMENT, True)
    await asyncio.to_thread(enroll, head.address, token, "box", tmp_path / "box")


async def test_what_is_too_long_is_not_read_where_invitations_are_redeemed(
    head: Open, tmp_path: Path
) -> None:
    token = Invitation.of(await head.invite(pb.IDENTITY_ROLE_NODE))
    host = head.address.rpartition(":")[0]
    pem = ssl.DER_cert_to_PEM_cert(token.authority).encode()
    credentials = grpc.ssl_channel_credentials(pem)
    address = f"{host}:{token.port}"
    async with grpc.aio.secure_channel(address, credentials, options=channel_options()) as channel:
        stub: Any = enroll_pb2_grpc.EnrollServiceStub(channel)
        request = pb.EnrollRequest(secret=b"x" * 20_000, name="box")
        assert (await status(stub.Enroll(request)))[0] is CODE.RESOURCE_EXHAUSTED
