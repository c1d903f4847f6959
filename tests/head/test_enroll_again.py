"""Who did not hear the head's answer asks again with the same key; nobody else comes in by that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from hermesd.head.api.enroll import Invitations
from hermesd.head.security import authority
from hermesd.pb.hermes.v1 import enroll_pb2 as pb
from hermesd.pb.hermes.v1 import enroll_pb2_grpc
from hermesd.security import enrollment
from hermesd.security.enrollment import enroll
from hermesd.security.identity import Invitation, NotEnrolled
from tests.head.heads import world
from tests.head.test_enroll import Open, attached, connected, head, info
from tests.head.test_transport import free_port

__all__ = ["head"]
NODE = pb.IDENTITY_ROLE_NODE


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Have so many of the head's next answers not come, after all that leads to them was done."""
    use, left = Invitations.use, 0

    def used(self: Invitations, secret: bytes, key: str) -> None:
        use(self, secret, key)
        missed()

    def missed() -> None:
        nonlocal left
        if left:
            left -= 1
            raise RuntimeError("the connection is gone")

    issue = authority.Authority.issue

    def issued(self: authority.Authority, *arguments: Any) -> bytes:
        known = self.is_held_by(arguments[0], authority.key_mark(arguments[1]))
        certificate = issue(self, *arguments)
        if known:  # it is not counted as used again
            missed()
        return certificate

    monkeypatch.setattr(Invitations, "use", used)
    monkeypatch.setattr(authority.Authority, "issue", issued)

    def lose(count: int) -> None:
        nonlocal left
        left = count

    return lose


async def joined(head: Open, token: str, name: str, folder: Path) -> enrollment.Membership:
    return await asyncio.to_thread(enroll, head.address, token, name, folder)


async def test_one_lost_answer_is_asked_for_again_at_once(
    head: Open, losing: Callable[[int], None], tmp_path: Path
) -> None:
    token = await head.invite(NODE)
    losing(1)
    box = await joined(head, token, "box", tmp_path / "box")
    async with connected(box) as channel:
        (await attached(channel, "box")).call.cancel()


async def test_who_joins_again_after_a_lost_answer_is_who_was_invited(
    head: Open, losing: Callable[[int], None], tmp_path: Path
) -> None:
    token = await head.invite(NODE)
    losing(2)
    with pytest.raises(NotEnrolled, match="run the same command again"):
        await joined(head, token, "box", tmp_path / "box")
    (left,) = (tmp_path / "box").iterdir()
    assert left.stat().st_mode & 0o077 == 0
    for name, why in (("box", "was used"), ("other", "was used")):
        with pytest.raises(NotEnrolled, match=why):
            await joined(head, token, name, tmp_path / "thief")
    with pytest.raises(NotEnrolled, match="no head answers there"):
        await asyncio.to_thread(enroll, f"127.0.0.1:{free_port()}", token, "box", tmp_path / "box")
    box = await joined(head, token, "box", tmp_path / "box")
    assert not left.exists()
    async with connected(box) as channel:
        (await attached(channel, "box")).call.cancel()


async def test_a_person_logs_in_again_after_a_lost_answer(
    head: Open, losing: Callable[[int], None], tmp_path: Path
) -> None:
    token = await head.invite(pb.IDENTITY_ROLE_USER, "alice")
    losing(2)
    with pytest.raises(NotEnrolled, match="run the same command again"):
        await joined(head, token, "alice", tmp_path / "alice")
    alice = await joined(head, token, "alice", tmp_path / "alice")
    async with connected(alice) as channel:
        assert (await info(channel)).version


async def test_a_token_of_several_counts_no_machine_twice(
    head: Open, losing: Callable[[int], None], tmp_path: Path
) -> None:
    token = await head.invite(NODE, uses=2)
    losing(1)
    for name in ("a", "b"):
        await joined(head, token, name, tmp_path / name)
    with pytest.raises(NotEnrolled, match="was used"):
        await joined(head, token, "c", tmp_path / "c")


async def test_a_head_that_cannot_write_down_whom_it_knows_uses_up_no_token(
    head: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await head.invite(NODE)
    write = authority.write_private

    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(authority, "write_private", full)
    with pytest.raises(NotEnrolled, match="internal error"):
        await joined(head, token, "box", tmp_path / "box")
    monkeypatch.setattr(authority, "write_private", write)
    await joined(head, token, "box", tmp_path / "again")


async def redeem(head: Open, token: str, name: str, key: ec.EllipticCurvePrivateKey) -> None:
    read = Invitation.of(token)
    request = pb.EnrollRequest(
        secret=read.secret, name=name, signing_request=enrollment._signing_request(key)
    )
    trusted = enrollment._authority_pem(read.authority)
    await asyncio.to_thread(enrollment._ask, f"127.0.0.1:{read.port}", trusted, request)


async def test_who_was_revoked_or_replaced_does_not_come_back_by_the_old_token(
    head: Open,
) -> None:
    mine, theirs = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    token = await head.invite(NODE, "box")
    for _ in range(3):
        await redeem(head, token, "box", mine)
    with pytest.raises(NotEnrolled, match="was used"):
        await redeem(head, token, "box", theirs)
    await redeem(head, await head.invite(NODE, "box"), "box", theirs)
    with pytest.raises(NotEnrolled, match="was used"):
        await redeem(head, token, "box", mine)
    token = await head.invite(NODE, "box")
    await redeem(head, token, "box", mine)
    stub: Any = enroll_pb2_grpc.EnrollServiceStub(head.channel)
    await stub.Revoke(pb.RevokeRequest(role=NODE, name="box"), metadata=head.admin)
    with pytest.raises(NotEnrolled, match="was used"):
        await redeem(head, token, "box", mine)


async def test_a_head_that_was_restarted_knows_by_which_key_a_token_was_used(
    tmp_path: Path,
) -> None:
    listen, reception = (f"127.0.0.1:{free_port()}" for _ in range(2))
    settings: dict[str, Any] = {"embedded": False, "listen": listen, "enroll": reception}
    key = ec.generate_private_key(ec.SECP256R1())
    async with world(tmp_path / "head", **settings) as up:
        system = Open(up.running, up.channel, up.control, up.nodes, up.directory)
        token = await system.invite(NODE, "box")
        await redeem(system, token, "box", key)
    async with world(tmp_path / "head", **settings):
        await redeem(system, token, "box", key)
        with pytest.raises(NotEnrolled, match="was used"):
            await redeem(system, token, "box", ec.generate_private_key(ec.SECP256R1()))


def test_no_token_is_taken_for_an_option() -> None:
    """One in 64 began with a hyphen, and the command that was printed did not work."""
    for number in range(500):
        made = Invitation(number.to_bytes(16, "big"), 7412, b"an authority")
        assert not made.token().startswith("-")
        assert Invitation.of(made.token()) == made
        assert Invitation.of(made.token().removeprefix("invite_")) == made, "as older heads say it"
