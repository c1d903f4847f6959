"""TCP, TLS and Prometheus: open to those who are meant, to nobody else."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import random
import socket
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import hermesd
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import control_pb2_grpc, node_pb2
from hermesd.security.enrollment import channel_options
from hermesd.security.token import Token
from tests.head.heads import Node, events, status, world
from tests.study_specs import spec


def free_port() -> int:
    """One that nobody listens at, and that the system gives to nobody who asks for any: those begin
    at 32768. Any that is free may be another's by the time that it is used."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_768)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


class Authority:
    """A certificate authority that lasts for a test."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._sign("authority", self.key, self.key, authority=True)

    def _sign(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        signer: ec.EllipticCurvePrivateKey,
        authority: bool = False,
    ) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        local = ipaddress.ip_address("127.0.0.1")
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(authority, None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(local)]), critical=False)
        )
        signed = builder.sign(signer, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        return pem(key), self._sign(name, key, self.key)


async def info(channel: grpc.aio.Channel, token: str) -> Any:
    stub: Any = control_pb2_grpc.ControlServiceStub(channel)
    metadata = (("authorization", f"Bearer {token}"),)
    return await stub.ServerInfo(pb.ServerInfoRequest(), metadata=metadata, timeout=10)


async def test_tls_takes_those_alone_who_have_a_certificate_and_a_token(tmp_path: Path) -> None:
    ours, theirs = Authority(), Authority()
    files: dict[str, Path] = {}
    key, certificate = ours.issue("head")
    for name, content in (
        ("tls_ca", ours.certificate),
        ("tls_key", key),
        ("tls_certificate", certificate),
    ):
        files[name] = tmp_path / f"{name}.pem"
        files[name].write_bytes(content)
    address = f"127.0.0.1:{free_port()}"
    state = tmp_path / "state"
    async with world(state, embedded=False, listen=address, **files):
        token = (state / "token").read_text().strip()
        good = grpc.ssl_channel_credentials(ours.certificate, *ours.issue("client"))
        async with grpc.aio.secure_channel(address, good) as channel:
            assert (await info(channel, token)).version
            assert (await status(info(channel, "x")))[0] is grpc.StatusCode.UNAUTHENTICATED
        bad = grpc.ssl_channel_credentials(ours.certificate, *theirs.issue("client"))
        bare = grpc.ssl_channel_credentials(ours.certificate)
        for credentials in (bad, bare):
            async with grpc.aio.secure_channel(address, credentials) as channel:
                assert (await status(info(channel, token)))[0] is grpc.StatusCode.UNAVAILABLE
        async with grpc.aio.insecure_channel(address) as channel:
            assert (await status(info(channel, token)))[0] is grpc.StatusCode.UNAVAILABLE


async def test_loopback_asks_for_no_certificate(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    async with world(tmp_path, embedded=False, listen=address):
        known = Token.of((tmp_path / "token").read_text())
        credentials = grpc.ssl_channel_credentials(known.authority)
        async with grpc.aio.secure_channel(address, credentials, channel_options()) as channel:
            assert (await info(channel, known.word)).version
            assert (await status(info(channel, "x")))[0] is grpc.StatusCode.UNAUTHENTICATED
        async with grpc.aio.insecure_channel(address) as channel:
            assert (await status(info(channel, known.word)))[0] is grpc.StatusCode.UNAVAILABLE


async def test_a_stalled_trial_is_seen_wherever_one_looks(tmp_path: Path) -> None:
    port = free_port()
    async with world(tmp_path, metrics_port=port) as head:
        node = Node(head)
        await node.hello()
        study = (await head.submit(spec({"lr": {"value": 1.0}}))).study
        launch = await node.start()
        run = {"trial": launch.trial, "attempt": launch.attempt}
        await node.report(launch, 1, [0.5, 0.25])
        await node.report(launch, 3, [0.5, 0.25])
        await node.say(run_stalled=node_pb2.RunStalled(**run, step=4, seconds=185.0))
        told = (await events(head, pb.PUBLIC_EVENT_KIND_STALLED))[-1]
        assert (told.trial, told.step, told.seconds) == (launch.trial, 4, 185.0)

        def metrics() -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                return str(answer.read().decode())

        async def seen() -> tuple[bool, bool, list[str], bool]:
            """In the trial's state, its speed, the study's notices, and for Prometheus."""
            found = await head.control.GetStudy(pb.GetStudyRequest(study=study))
            (trial,) = found.trials
            notices = [words for words in found.study.notices if "no further step" in words]
            text = await asyncio.to_thread(metrics)
            gauge = "hermes_head_trials_stalled 1.0" in text
            return trial.stalled_since_unix_seconds > 0, trial.steps_per_second > 0, notices, gauge

        state, speed, notices, gauge = await seen()
        assert (state, speed, gauge) == (True, False, True)
        assert notices[0].startswith(f"{launch.trial} has made no further step for 3 min")
        await node.report(launch, 5, [0.5])
        await node.settle()
        assert await seen() == (False, True, [], False)


def sampled(port: int) -> dict[str, float]:
    """What the metrics page says, by a name with its labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


async def test_prometheus_sees_what_the_head_does(tmp_path: Path) -> None:
    port = free_port()
    async with world(tmp_path, metrics_port=port) as head:
        node = Node(head)
        await node.hello()
        await head.submit(spec({"lr": {"value": 1.0}}))
        seen = await asyncio.to_thread(sampled, port)
        assert seen["hermes_head_nodes"] == 1
        assert seen['hermes_head_trials{phase="starting"}'] == 1
        assert seen["hermes_head_entries_total"] == 3
        assert seen[f'hermes_build_info{{version="{hermesd.__version__}"}}'] == 1
        launch = await node.start()
        await node.report(launch, 1, [0.5, 0.25])
        await node.settle()
        seen = await asyncio.to_thread(sampled, port)
        assert seen["hermes_reports_total"] == 1
        assert seen["hermes_starts_total"] == 1
        assert seen["hermes_start_seconds_total"] == pytest.approx(0.1)
        study = launch.trial.split("/")[0]
        assert seen[f'hermes_study_trials{{phase="running",study="{study}"}}'] == 1
        assert seen[f'hermes_study_trials{{phase="waiting",study="{study}"}}'] == 0
        assert seen['hermes_node_connected{node="box",pool="default"}'] == 1
        assert 0 <= seen['hermes_node_heartbeat_age_seconds{node="box"}'] < 600
        assert seen['hermes_device_busy{device="box/cpu:0",pool="default"}'] == 1
        assert seen['hermes_device_sound{device="box/cpu:0",pool="default"}'] == 1
        commits = seen["hermes_head_commit_seconds_count"]
        assert commits == seen['hermes_head_commit_seconds_bucket{le="+Inf"}']
        assert commits == seen["hermes_head_batches_total"]
        assert seen["hermes_head_decision_seconds_count"] >= commits
        await node.complete(launch)
        await node.settle()
        seen = await asyncio.to_thread(sampled, port)
        assert seen['hermes_device_busy{device="box/cpu:0",pool="default"}'] == 0
        assert seen['hermes_device_busy_seconds_total{device="box/cpu:0",pool="default"}'] > 0
        assert not [name for name in seen if "study=" in name], "its study is over"
        assert not [name for name in seen if launch.trial in name]
        node.call.cancel()
    with pytest.raises(urllib.error.URLError):
        await asyncio.to_thread(sampled, port)
