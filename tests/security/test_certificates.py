"""What a certificate opens ends with it; who renews is its owner, and a thief is found."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from hermesd.expecting import StateAway
from hermesd.head.security import authority
from hermesd.head.security.authority import Authority, Stolen
from hermesd.pb.hermes.v1 import control_pb2, control_pb2_grpc, enroll_pb2_grpc, node_pb2
from hermesd.pb.hermes.v1 import enroll_pb2 as pb
from hermesd.security import pem
from hermesd.security.enrollment import Membership, channel_options
from hermesd.security.identity import Identity, Role
from tests.head.heads import status, world
from tests.head.test_enroll import Open, attached, connected, head, info
from tests.head.test_transport import free_port
from tests.waiting import ASK_SECONDS, until

assert head  # a fixture

CODE = grpc.StatusCode
BOX = Identity(Role.NODE, "box")
FILES = ("member.crt", "member.key")
# In the last third of what was given today.
LATER = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=61)


async def renew(member: Membership) -> None:
    """As its daemon or its command line does when it is time."""
    await member.renew(
        LATER,
        lambda: grpc.aio.secure_channel(
            member.head, member.credentials(), options=channel_options()
        ),
    )


def kept(member: Membership) -> dict[str, bytes]:
    return {name: (member.folder / name).read_bytes() for name in FILES}


def put_back(member: Membership, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (member.folder / name).write_bytes(content)


def copied(member: Membership, folder: Path) -> Membership:
    """What a thief has who read the folder once."""
    folder.mkdir()
    for file in member.folder.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return Membership(folder)


def answer_lost(member: Membership, before: dict[str, bytes]) -> None:
    """As if the head's last answer had never come."""
    (member.folder / "member.key").rename(member.folder / "renewal.key")
    put_back(member, before)


async def works(member: Membership) -> bool:
    async with connected(member) as channel:
        return bool((await info(channel)).version)


async def refused(member: Membership) -> str:
    async with connected(member) as channel:
        code, words = await status(info(channel))
    assert code is CODE.UNAUTHENTICATED
    return words


async def test_a_renewed_certificate_is_of_a_new_key_and_counts_beside_the_one_before(
    head: Open, tmp_path: Path
) -> None:
    alice = await head.member(pb.IDENTITY_ROLE_USER, "alice", tmp_path / "alice")
    now = datetime.datetime.now(datetime.UTC)
    assert alice.seconds_to_renewal(now) > 50 * 86_400
    assert alice.seconds_to_renewal(LATER) == 0
    before = kept(alice)
    async with connected(alice) as old:
        await renew(alice)
        assert not before.items() & kept(alice).items()
        assert await works(alice)
        assert (await info(old)).version
    for file in alice.folder.iterdir():
        assert file.stat().st_mode & 0o077 == 0


async def test_it_is_not_renewed_before_its_time(head: Open, tmp_path: Path) -> None:
    alice = await head.member(pb.IDENTITY_ROLE_USER, "alice", tmp_path / "alice")
    before = kept(alice)
    async with connected(alice) as channel:
        await alice.renew(datetime.datetime.now(datetime.UTC), lambda: channel)
    assert kept(alice) == before


async def test_answers_that_are_lost_lock_nobody_out(head: Open, tmp_path: Path) -> None:
    """Nor a process that ends between one file and the next."""
    alice = await head.member(pb.IDENTITY_ROLE_USER, "alice", tmp_path / "alice")
    before = kept(alice)
    for _ in range(5):
        await renew(alice)
        answer_lost(alice, before)
        assert await works(alice)
    await renew(alice)
    (alice.folder / "member.key").rename(alice.folder / "renewal.key")
    (alice.folder / "member.key").write_bytes(before["member.key"])
    assert await works(alice)
    await renew(alice)
    assert await works(alice)
    assert not (alice.folder / "renewal.key").exists()


async def test_two_who_renew_one_certificate_are_both_stopped(head: Open, tmp_path: Path) -> None:
    box = await head.member(pb.IDENTITY_ROLE_NODE, "box", tmp_path / "box")
    thief = copied(box, tmp_path / "thief")
    await renew(thief)
    async with connected(thief) as channel:
        node = await attached(channel, "box")
        with pytest.raises(
            grpc.aio.AioRpcError, match="somebody else has a copy of the key of node box"
        ):
            await renew(box)
        await node.call.write(node_pb2.AttachRequest(heartbeat=node_pb2.Heartbeat()))
        code, words = await status(node.ended())
        assert (code, "node box is no longer valid" in words) == (CODE.UNAUTHENTICATED, True)
    assert "is no longer valid" in await refused(box)
    again = await head.member(pb.IDENTITY_ROLE_NODE, "box", tmp_path / "again")
    async with connected(again) as channel:
        await attached(channel, "box")


async def test_a_thief_who_renews_twice_is_found_by_the_owners_next_call(
    head: Open, tmp_path: Path
) -> None:
    alice = await head.member(pb.IDENTITY_ROLE_USER, "alice", tmp_path / "alice")
    thief = copied(alice, tmp_path / "thief")
    await renew(thief)
    await renew(thief)
    assert await works(thief)
    assert "somebody else has a copy of the key of user alice" in await refused(alice)
    assert "is no longer valid" in await refused(thief)


async def always(channel: grpc.aio.Channel) -> None:
    while True:
        await info(channel)


async def test_a_connection_ends_with_its_certificate(
    head: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authority, "CERTIFICATE_LIFE", datetime.timedelta(seconds=3))
    alice = await head.member(pb.IDENTITY_ROLE_USER, "alice", tmp_path / "alice")
    async with connected(alice) as channel:
        assert (await info(channel)).version
        with pytest.raises(grpc.aio.AioRpcError, match="certificate of user alice ended 20"):
            await always(channel)


async def test_an_upload_ends_with_the_certificate_that_it_was_begun_with(
    head: Open, tmp_path: Path
) -> None:
    alice = await head.member(pb.IDENTITY_ROLE_USER, "alice", tmp_path / "alice")
    enrolling: Any = enroll_pb2_grpc.EnrollServiceStub(head.channel)
    async with connected(alice) as channel:
        stub: Any = control_pb2_grpc.ControlServiceStub(channel)
        upload = stub.PutBlob()
        await upload.write(control_pb2.PutBlobRequest(data=b"first"))
        while not list((head.directory / "blobs").iterdir()):
            await info(channel)
        gone = pb.RevokeRequest(role=pb.IDENTITY_ROLE_USER, name="alice")
        await enrolling.Revoke(gone, metadata=head.admin)
        await upload.write(control_pb2.PutBlobRequest(data=b"second"))
        await upload.done_writing()
        code, words = await status(upload)
    assert (code, "user alice is no longer valid" in words) == (CODE.UNAUTHENTICATED, True)
    assert not list((head.directory / "blobs").iterdir())


def signing_request() -> x509.CertificateSigningRequest:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, hashes.SHA256())


def number(pem: bytes) -> int:
    return x509.load_pem_x509_certificate(pem).serial_number


def test_the_ledger_outlives_the_head(tmp_path: Path) -> None:
    asked, again = signing_request(), signing_request()
    ours = Authority(tmp_path)
    first = number(ours.issue(BOX, asked))
    lost = [number(ours.renew(BOX, first, again)) for _ in range(40)]
    assert [Authority(tmp_path).counts(BOX, each) for each in lost] == [False] * 24 + [True] * 16
    assert Authority(tmp_path).counts(BOX, first)
    ours.renew(BOX, lost[-1], signing_request())
    with pytest.raises(Stolen):
        Authority(tmp_path).counts(BOX, first)
    assert Authority(tmp_path).identities() == {}


def test_a_ledger_of_an_older_head_is_read(tmp_path: Path) -> None:
    asked = signing_request()
    used = number(Authority(tmp_path).issue(BOX, asked))
    mark = authority.key_mark(asked)
    (tmp_path / "issued.json").write_text(f'[["node", "box", ["7", "{used}"], 1e10, "{mark}"]]')
    ours = Authority(tmp_path)
    assert ours.counts(BOX, used)
    assert ours.is_held_by(BOX, mark)
    assert number(ours.renew(BOX, used, signing_request()))


def shown(address: str) -> bytes:
    """The certificate that the head shows to who connects."""
    host, _, port = address.rpartition(":")
    return ssl.get_server_certificate((host, int(port))).encode()


async def test_the_heads_own_certificate_is_renewed_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authority, "SERVER_LIFE", datetime.timedelta(seconds=4))
    listen, reception = (f"127.0.0.1:{free_port()}" for _ in range(2))
    settings: dict[str, Any] = {"embedded": False, "listen": listen, "enroll": reception}
    async with world(tmp_path / "head", **settings):
        for address in (listen, reception):
            first = await asyncio.to_thread(shown, address)
            await asyncio.to_thread(
                until, lambda address=address, first=first: shown(address) != first, ASK_SECONDS
            )


async def test_a_nodes_port_has_the_renewals_of_its_certificate(head: Open, tmp_path: Path) -> None:
    box = await head.member(pb.IDENTITY_ROLE_NODE, "box", tmp_path / "box")
    server = grpc.aio.server()
    address = f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', box.server_credentials())}"
    await server.start()
    assert number(await asyncio.to_thread(shown, address)) == number(kept(box)["member.crt"])
    await renew(box)
    assert number(await asyncio.to_thread(shown, address)) == number(kept(box)["member.crt"])
    (box.folder / "member.crt").write_text("damaged")
    assert await asyncio.to_thread(shown, address)
    await server.stop(None)


def test_a_port_is_given_new_files_only_when_they_have_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """gRPC frees what it had while other handshakes use it: hundreds of nodes that came at once
    ended the head."""
    given: list[Any] = []
    monkeypatch.setattr(grpc, "dynamic_ssl_server_credentials", lambda *told: given.append(told))
    files = [Authority(tmp_path / name).server_files() for name in ("first", "second")]
    there = [files[0]]

    def read() -> pem.Files:
        if not there:
            raise StateAway("the disk is away")
        return there[0]

    pem.server_credentials(read, members_only=True)
    ((_, newest, _),) = given
    assert newest() is None
    there[:] = [files[1]]
    assert newest() is not None
    assert newest() is None
    there.clear()
    assert newest() is None
