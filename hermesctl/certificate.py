"""Running the engine of the resume certificate, and what it says.

Rule: the engine is a process of its own, in a folder of its own; when we leave, however that is,
it has ended, and with it all that it had started.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hermesctl.errors import HermesError, Problem, Refused, UsageError
from hermesctl.snapshot import snapshot
from hermesctl.submission import Prepared, inherited_environment, interpreter
from hermesctl.text import printable
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1.types_pb2 import NamedValue, StudySpec, Value

ENGINE = (sys.executable, "-m", "hermesd.node.verify")
_END_SECONDS = 20.0
_LOG_LINES_SHOWN = 15

Said = Mapping[str, Any]


async def certificate(prepared: Prepared, arguments: Sequence[str]) -> AsyncGenerator[Said, None]:
    """What the engine says of a study: its progress, then the certificate.

    Raises UsageError for what can't be meant, Refused when the program fails undisturbed.
    """
    with tempfile.TemporaryDirectory(prefix="hermes-verify-") as name:
        folder = Path(name)
        _write_request(folder, prepared)
        async with _engine(folder, arguments) as process:
            assert process.stdout is not None
            done = False
            async for line in process.stdout:
                said = json.loads(line)
                _raise_refusal(said, prepared)
                done = said["kind"] == "certificate"
                yield said
            if not done:
                raise HermesError(f"the verification ended without a word:\n{_log_end(folder)}")


def _write_request(folder: Path, prepared: Prepared) -> None:
    spec = StudySpec()
    spec.CopyFrom(prepared.spec)
    if spec.conda:
        words = "its interpreter as `python` in its place: this machine is verified on, not a node"
        raise UsageError(f"conda: {printable(spec.conda)}: expected {words}")
    spec.python = interpreter(spec.python, prepared.directory, here=True)
    environment = inherited_environment(spec, os.environ)
    request = pb.SubmitStudyRequest(
        spec=spec,
        submit_directory=str(prepared.directory),
        environment=[
            NamedValue(name=name, value=Value(string_value=text))
            for name, text in environment.items()
        ],
    )
    with snapshot(prepared.directory, tuple(spec.data)) as code:
        request.code_sha256 = code.sha256
        (folder / "code.tar").write_bytes(code.tar.read())
    (folder / "request.pb").write_bytes(request.SerializeToString())


@asynccontextmanager
async def _engine(
    folder: Path, arguments: Sequence[str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    with (folder / "engine.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *ENGINE,
            str(folder),
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        # It ends with its standard input. To send it a signal, Python would look whether it is
        # there, and take from its own watcher the process that has just ended.
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _END_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()


def _raise_refusal(said: Said, prepared: Prepared) -> None:
    if said["kind"] == "failed":
        raise Refused(f"the program fails undisturbed: {said['reason']}")
    if said["kind"] == "refused":
        found = [
            Problem(
                error["expected"], _option(error["field_path"]), error["value"], error["nearest"]
            )
            for error in said["errors"]
        ]
        raise UsageError("expected a study", prepared.located(tuple(found)))


def _option(field_path: str) -> str:
    return {"trial": "--trial", "suspend_at": "--suspend-at"}.get(field_path, field_path)


def _log_end(folder: Path) -> str:
    lines = (folder / "engine.log").read_text(errors="replace").splitlines()
    return "\n".join(lines[-_LOG_LINES_SHOWN:])
