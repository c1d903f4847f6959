"""The wire, spoken by a program that has nothing of Hermes but its protos."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from hermesd.pb.hermes.v1 import control_pb2 as pb
from tests.head.heads import World, by_token, request_id, status, world
from tests.head.test_transport import free_port
from tests.study_specs import spec

ROOT = Path(__file__).resolve().parent.parent.parent
SERVING = health_pb2.HealthCheckResponse.SERVING
CHECK = health_pb2.HealthCheckRequest()
PACKAGES = ("@grpc/grpc-js", "@grpc/proto-loader")


@pytest.fixture(scope="session")
def javascript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the client that docs/wire.md shows, and the packages that it needs."""
    folder = tmp_path_factory.mktemp("javascript")
    if shutil.which("npm") is None:
        pytest.skip("no node here")
    install = ("npm", "install", "--silent", "--no-audit", "--no-fund", *PACKAGES)
    if subprocess.run(install, cwd=folder, check=False).returncode:
        pytest.skip("no packages of Node.js here")
    page = (ROOT / "docs" / "wire.md").read_text()
    (code,) = re.findall(r"```js\n(.*?)```", page, re.DOTALL)
    assert len(code.splitlines()) <= 25
    (folder / "trials.js").write_text(code)
    return folder


async def said(folder: Path, *arguments: str) -> tuple[int | None, str]:
    """How the client ends, and what it prints."""
    client = await asyncio.create_subprocess_exec(
        *("node", "trials.js", *arguments),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await client.communicate()
    return client.returncode, output.decode()


async def test_a_client_in_another_language_reads_a_study(javascript: Path, tmp_path: Path) -> None:
    protos, address = str(ROOT / "protos"), f"127.0.0.1:{free_port()}"
    async with world(tmp_path, embedded=False, listen=address) as head:
        token = head.directory / "token"
        words = by_token(token)
        asked = pb.SubmitStudyRequest(request_id=request_id(), spec=spec())
        await head.control.SubmitStudy(asked, metadata=words)
        shown = await head.control.GetStudy(pb.GetStudyRequest(study="digits"), metadata=words)
        expected = "".join(f"{trial.id} TRIAL_STATE_WAITING 0 -\n" for trial in shown.trials)
        for where in (address, f"unix:{head.directory / 'head.sock'}"):
            assert await said(javascript, where, protos, str(token), "digits") == (0, expected)
        code, output = await said(
            javascript, f"unix:{head.directory / 'head.sock'}", protos, "", "digits"
        )
        assert code != 0
        assert "UNAUTHENTICATED: a valid token is needed" in output


async def test_a_head_that_runs_is_healthy(head: World) -> None:
    stub: Any = health_pb2_grpc.HealthStub(head.channel)
    assert (await stub.Check(CHECK)).status == SERVING


async def test_a_node_may_ask_for_health_and_not_for_methods(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    async with world(tmp_path, embedded=False, listen=address) as head:
        words = by_token(head.directory / "node-token")
        health: Any = health_pb2_grpc.HealthStub(head.channel)
        reflection: Any = reflection_pb2_grpc.ServerReflectionStub(head.channel)
        assert (await health.Check(CHECK, metadata=words)).status == SERVING
        code, _ = await status(health.Check(CHECK))
        assert code is grpc.StatusCode.UNAUTHENTICATED
        call = reflection.ServerReflectionInfo(metadata=words)
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        assert (await status(call.read()))[0] is grpc.StatusCode.UNAUTHENTICATED


async def test_methods_are_found_without_the_protos(head: World) -> None:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(head.channel)
    call = stub.ServerReflectionInfo()
    asked = reflection_pb2.ServerReflectionRequest
    await call.write(asked(list_services=""))
    services = [one.name for one in (await call.read()).list_services_response.service]
    assert services == ["grpc.health.v1.Health", "hermes.v1.ControlService"]
    await call.write(asked(file_containing_symbol="hermes.v1.ControlService"))
    assert (await call.read()).file_descriptor_response.file_descriptor_proto
    call.cancel()
