"""A new authority takes over while everything runs: nobody is let go, and the old one ends."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hermesd.head.budget import Budget
from hermesd.head.security import guard, roots
from hermesd.head.security.authority import Authority, Grant
from hermesd.pb.hermes.v1 import control_pb2, control_pb2_grpc, enroll_pb2_grpc
from hermesd.pb.hermes.v1 import enroll_pb2 as pb
from hermesd.security.enrollment import Membership, channel_options, enroll, key_pem
from hermesd.security.identity import Identity, Role
from tests.e2e.test_joining import Place, notified
from tests.head.heads import status
from tests.head.test_enroll import Open, attached, connected, head, info
from tests.security.test_certificates import signing_request
from tests.waiting import ASK_SECONDS, until

assert head  # a fixture

BOX = Identity(Role.NODE, "box")
ALICE = Identity(Role.USER, "alice")
CODE = grpc.StatusCode


class Hand:
    """The clock of the authority's rotations, set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.later = 0.0
        began = roots._unix_seconds()
        monkeypatch.setattr(roots, "_unix_seconds", lambda: began + self.later)


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> Hand:
    return Hand(monkeypatch)


async def rotate(head: Open, seconds: float = 100.0) -> None:
    stub: Any = enroll_pb2_grpc.EnrollServiceStub(head.channel)
    request = pb.RotateAuthorityRequest(overlap_seconds=seconds)
    await stub.RotateAuthority(request, metadata=head.admin)


async def advanced(head: Open) -> None:
    """The head has seen what its clock says."""
    authority = head.running.authority
    assert authority is not None
    authority.advance()


async def behind(head: Open) -> set[str]:
    stub: Any = enroll_pb2_grpc.EnrollServiceStub(head.channel)
    answer = await stub.GetAuthority(pb.GetAuthorityRequest(), metadata=head.admin)
    return {one.name for one in answer.authority.behind}


async def told(member: Membership) -> None:
    """As its daemon or its command line does once it has heard of the head's roots."""
    async with connected(member) as channel:
        call = info_call(channel)
        await call
        mark = str(dict(await call.trailing_metadata())["hermes-authority"])
    now = datetime.datetime.now(datetime.UTC)
    await member.renew(
        now,
        lambda: grpc.aio.secure_channel(
            member.head, member.credentials(), options=channel_options()
        ),
        mark,
    )


def info_call(channel: grpc.aio.Channel) -> Any:
    stub: Any = control_pb2_grpc.ControlServiceStub(channel)
    return stub.ServerInfo(control_pb2.ServerInfoRequest(), timeout=10)


def issuer(member: Membership) -> str:
    files = member.files()
    return x509.load_pem_x509_certificate(files.certificate).issuer.rfc4514_string()


def known(member: Membership) -> list[str]:
    certificates = x509.load_pem_x509_certificates(member.files().authority)
    return [one.subject.rfc4514_string() for one in certificates]


async def works(member: Membership) -> bool:
    async with connected(member) as channel:
        return bool((await info(channel)).version)


async def test_everybody_who_comes_in_each_half_goes_over_and_the_old_root_ends(
    head: Open, tmp_path: Path, hand: Hand
) -> None:
    alice = await head.member(pb.IDENTITY_ROLE_USER, "alice", tmp_path / "alice")
    idle = await head.member(pb.IDENTITY_ROLE_USER, "idle", tmp_path / "idle")
    [old] = known(alice)
    await rotate(head)
    assert await behind(head) == {"alice", "idle"}
    await told(alice)
    assert await behind(head) == {"idle"}
    [first, new] = known(alice)
    assert (first, issuer(alice)) == (old, old), "nobody knows the new one yet"
    assert new != old
    late = await head.member(pb.IDENTITY_ROLE_USER, "late", tmp_path / "late")
    hand.later = 50.0
    await advanced(head)
    assert await behind(head) == {"alice", "idle", "late"}
    await told(alice)
    assert (known(alice), issuer(alice)) == ([new, old], new)
    await told(late)
    async with connected(idle) as open_still:
        assert (await info(open_still)).version
        hand.later = 100.0
        await advanced(head)
        code, words = await status(info(open_still))
        assert code is CODE.UNAUTHENTICATED
        assert (
            "signed by an authority's key that was replaced: enroll again with a new token" in words
        )
    for member in (alice, late):
        assert await works(member)
        await told(member)
        assert (known(member), issuer(member)) == ([new], new)
    with pytest.raises(grpc.aio.AioRpcError, match=r"failed to connect|Ssl handshake|CERTIFICATE"):
        await works(idle)


async def test_nodes_meet_whatever_each_has_heard(head: Open, tmp_path: Path, hand: Hand) -> None:
    """At each moment one's certificate is known to the other, who may be a step behind."""
    boxes = [await head.member(pb.IDENTITY_ROLE_NODE, name, tmp_path / name) for name in ("a", "b")]

    async def meet() -> None:
        for giver, taker in (boxes, boxes[::-1]):
            server = grpc.aio.server()
            port = server.add_secure_port("127.0.0.1:0", giver.server_credentials())
            await server.start()
            async with grpc.aio.secure_channel(
                f"127.0.0.1:{port}",
                taker.credentials(),
                options=channel_options(f"{giver.identity.name}.node.hermes"),
            ) as channel:
                await asyncio.wait_for(channel.channel_ready(), 10)
            await server.stop(None)

    mark = head.running.authority
    assert mark is not None
    for later in (0.0, 50.0, 100.0):
        if not later:
            await rotate(head)
        hand.later = later
        await advanced(head)
        for box in boxes:
            now = datetime.datetime.now(datetime.UTC)
            async with connected(box) as channel:
                await box.renew(now, lambda channel=channel: channel, mark.mark)  # type: ignore[misc]
            await meet()
    assert issuer(boxes[0]) == issuer(boxes[1]) == known(boxes[0])[0] == known(boxes[1])[0]


async def test_a_token_made_meanwhile_is_good_before_and_after_the_change(
    head: Open, tmp_path: Path, hand: Hand
) -> None:
    await rotate(head)
    words = [await head.invite(pb.IDENTITY_ROLE_NODE, name) for name in ("before", "after")]
    await asyncio.to_thread(enroll, head.address, words[0], "before", tmp_path / "before")
    hand.later = 100.0
    await advanced(head)
    box = await asyncio.to_thread(enroll, head.address, words[1], "after", tmp_path / "after")
    async with connected(box) as channel:
        await attached(channel, "after")


async def test_the_head_itself_sees_to_each_step(head: Open, hand: Hand) -> None:
    authority = head.running.authority
    assert authority is not None
    before = authority.mark
    await rotate(head)
    for later in (50.0, 100.0):
        hand.later, was = later, authority.mark
        while authority.mark == was:
            await behind(head)
    assert (authority.rotation, authority.mark != before) == (None, True)


async def test_one_at_a_time_and_not_in_a_hurry(head: Open) -> None:
    for seconds in (0.0, 9.0, float("nan"), 1e9):
        code, words = await status(rotate(head, seconds))
        assert (code, words[:16]) == (CODE.INVALID_ARGUMENT, "overlap_seconds ")
    await rotate(head)
    code, words = await status(rotate(head))
    assert (code, words) == (
        CODE.FAILED_PRECONDITION,
        "the authority is being replaced already: that has to end first",
    )


STEPS = 12


class Killed(BaseException):
    """Where a test ends the process."""


@contextmanager
def killed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Nothing reaches the disk from so many writes and removals on."""
    done: list[int] = []

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*words: Any, **more: Any) -> Any:
            done.append(step)
            if len(done) > step:
                raise Killed
            return real(*words, **more)

        return instead

    with monkeypatch.context() as patched:
        patched.setattr(roots, "write_private", counted(roots.write_private))
        patched.setattr(Path, "unlink", counted(Path.unlink))
        with contextlib.suppress(Killed):
            yield done


@pytest.mark.parametrize("step", range(STEPS))
def test_a_kill_at_any_step_leaves_one_authority_or_both(
    step: int, tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Authority(tmp_path)
    old = ours.roots_pem
    ours.issue(ALICE, signing_request())
    with killed_at(step, monkeypatch):
        ours.rotate(100.0)
    again = Authority(tmp_path)
    assert (again.rotation is not None) == (again.roots_pem != old)
    assert old in again.roots_pem
    if again.rotation is None:
        again.rotate(100.0)
    both = again.roots_pem
    hand.later = 100.0
    with killed_at(step, monkeypatch):
        again.advance()
    hand.later = 99.0 if step else 100.0  # a clock that is set back begins nothing anew
    last = Authority(tmp_path)
    if last.rotation is not None:
        hand.later = 100.0
        last.advance()
    assert last.rotation is None
    assert last.roots_pem == both.replace(old, b"")
    assert Authority(tmp_path).roots_pem == last.roots_pem
    assert {path.name for path in tmp_path.iterdir()} == {
        "authority.key", "authority.crt", "issued.json",
    }  # fmt: skip
    assert list(last.identities()) == [ALICE], "whose name stays taken"


def test_the_steps_are_all_there_are(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Authority(tmp_path)
    with killed_at(1_000, monkeypatch) as done:
        ours.rotate(100.0)
        begun = len(done)
        hand.later = 100.0
        ours.advance()
    assert 0 < max(begun, len(done) - begun) < STEPS


SCRIPT = """
import itertools, time
for step in itertools.count(1):
    time.sleep(0.02)
    print(f"step {step} loss: {1 / step}", flush=True)
"""
STUDY = "name: endless\nprogram: train.py\nmethod: grid\nparameters: {rate: {values: [1]}}\n"


@contextmanager
def head_process(place: Place) -> Iterator[subprocess.Popen[bytes]]:
    """A head of its own, which the test may kill."""
    with notified(place.folder) as (socket, ready):
        process = subprocess.Popen(
            [sys.executable, "-m", "hermesd", "head"],
            env={**place.environment, "NOTIFY_SOCKET": socket},
        )
        try:
            ready()
            yield process
        finally:
            process.kill()
            process.wait()


@pytest.mark.timeout(300)
def test_a_node_a_trial_and_a_person_outlive_the_change_and_a_killed_head(tmp_path: Path) -> None:
    place = Place(tmp_path)
    node = ("--state", str(tmp_path / "node"), "--slots", "1")
    membership = Membership(tmp_path / "node" / "membership")
    login = Membership(tmp_path / "config" / "hermes" / "contexts" / "lab")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(SCRIPT)
    (tmp_path / "code" / "study.yaml").write_text(STUDY)

    def trial() -> dict[str, Any]:
        words = ("--head", "lab", "trial", "show", "endless/1", "-o", "json")
        found: dict[str, Any] = json.loads(place.ctl(*words))["trial"]
        return found

    def running_until(holds: Callable[[], bool]) -> None:
        """Wait, and have the login used all the time: its roots come with what is answered."""

        def asked() -> bool:
            assert trial()["state"] == "running"
            return holds()

        until(asked, ASK_SECONDS)

    def move(name: str) -> None:
        """To where a time of the rotation has come, while no head runs."""
        times = json.loads(plan.read_text())
        plan.write_text(json.dumps({**times, name: roots._unix_seconds()}))

    plan = tmp_path / "head" / "authority" / "rotation.json"
    with contextlib.ExitStack() as daemons:
        with head_process(place) as head:
            join = place.ctl("node", "token", "--name", "box", admin=True).split()
            daemons.enter_context(place.daemon(*join[1:], *node))
            for name, called in (("alice", "lab"), ("idle", "idle")):
                words = place.ctl("user", "token", name, admin=True).split()
                place.ctl(*words[1:], "--name", called)
            place.until_connected("box", "--head", "lab")
            place.ctl("--head", "lab", "submit", str(tmp_path / "code" / "study.yaml"))
            until(lambda: trial()["state"] == "running", ASK_SECONDS)
            [old] = known(login)
            place.ctl("authority", "rotate", "--days", "1", "-y", admin=True)
            running_until(lambda: len(known(membership)) == len(known(login)) == 2)
            os.kill(head.pid, signal.SIGKILL)
        move("signs_unix_seconds")
        with head_process(place) as head:
            running_until(lambda: old not in (issuer(membership), issuer(login)))
            os.kill(head.pid, signal.SIGKILL)
        move("ends_unix_seconds")
        with head_process(place):
            running_until(lambda: len(known(membership)) == len(known(login)) == 1)
            assert known(membership) == known(login) == [issuer(membership)] != [old]
            step = trial()["step"]
            until(lambda: trial()["step"] != step, ASK_SECONDS)
            assert trial()["attempt"] == 1, "the run that began before"
            idle = Membership(login.folder.with_name("idle"))
            assert asyncio.run(status(works(idle)))[0] is CODE.UNAVAILABLE
            assert asyncio.run(works(login))
            place.ctl("--head", "lab", "study", "stop", "endless", "-y")
            until(lambda: trial()["state"] == "cancelled", ASK_SECONDS)


async def test_all_nodes_of_one_user_renew_at_once_and_none_is_put_off(
    head: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than a user may change at once; but not twice."""
    monkeypatch.setattr(guard, "PATIENCE_SECONDS", 0.0)
    # However long the calls take: nothing is earned back meanwhile.
    monkeypatch.setattr(guard, "Budget", lambda clock: Budget(lambda: 0.0))
    authority, count = head.running.authority, int(guard.CHANGES_AT_ONCE_SECONDS) + 10
    assert authority is not None
    members = {}
    for number in range(count):
        key, name = ec.generate_private_key(ec.SECP256R1()), f"hers-{number}"
        asked = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
        signed = asked.sign(key, hashes.SHA256())
        given = authority.issue(Identity(Role.NODE, name), signed, Grant(owner="alice"))
        members[name] = grpc.ssl_channel_credentials(authority.roots_pem, key_pem(key), given)
    await rotate(head)
    later = signing_request().public_bytes(serialization.Encoding.PEM)

    async def renewed(credentials: grpc.ChannelCredentials) -> Any:
        options = channel_options()
        async with grpc.aio.secure_channel(head.address, credentials, options=options) as channel:
            stub: Any = enroll_pb2_grpc.EnrollServiceStub(channel)
            return await stub.Renew(pb.RenewRequest(signing_request=later)).code()

    assert {await renewed(each) for each in members.values()} == {CODE.OK}
    assert not members.keys() & await behind(head)
    again = [await renewed(each) for each in members.values()]
    assert CODE.RESOURCE_EXHAUSTED in again
