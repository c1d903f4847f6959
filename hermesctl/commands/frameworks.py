"""Which frameworks an interpreter on this machine has, and which of them are untested.

Only the records of installers are read. Nothing is imported, so it takes almost no time.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import hermesctl
from hermesctl.study_file.script_options import imported
from hermesctl.study_file.submission import interpreter
from hermesd import children
from hermesd.pb.hermes.v1.types_pb2 import StudySpec

_SECONDS = 30.0
_SEEN_INTO = {
    *("torch", "lightning", "pytorch_lightning", "transformers", "accelerate"),
    *("keras", "tensorflow", "jax"),
}
# It needs nothing but the standard library, whatever the interpreter's own environment has.
_SOURCE = Path(hermesctl.__file__).parents[1] / "trainer_shim/adapters/private_names.py"
_CODE = "\nimport json\nprint(json.dumps(installed()))\n"


@dataclass(frozen=True, slots=True)
class InstalledFramework:
    """A framework that trials may use."""

    package: str
    version: str
    #: Why a trial that uses it can only be parked; empty for a version that was tested.
    doubt: str


class NoInterpreter(Exception):
    """It doesn't run; the text is why."""


async def frameworks(python: str) -> list[InstalledFramework]:
    """Those that the interpreter at the absolute path `python`, which is run, has. Raises
    NoInterpreter."""
    try:
        process = await asyncio.create_subprocess_exec(
            *(python, "-"),
            cwd="/",  # Python would import first what lies in the current folder
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise NoInterpreter(error.strerror) from None
    try:
        code = _SOURCE.read_bytes() + _CODE.encode()
        out, errors = await asyncio.wait_for(process.communicate(code), _SECONDS)
    except TimeoutError:
        raise NoInterpreter(f"it does not end within {_SECONDS:.0f} s") from None
    finally:
        await children.end(process)
    last = errors.decode(errors="replace").strip().splitlines()[-1:]
    if process.returncode:
        raise NoInterpreter(last[0] if last else f"exit code {process.returncode}")
    try:
        return [InstalledFramework(*each) for each in json.loads(out.splitlines()[-1])]
    except (ValueError, TypeError, IndexError):
        raise NoInterpreter("it is not a Python") from None


async def untested(spec: StudySpec, directory: Path) -> list[str]:
    """What to say of the frameworks that a program imports, as the submitter's own Python has them;
    one that the study names is not run to look at the study."""
    is_script = spec.program.endswith(".py") and not spec.python
    used = imported(directory / spec.program) if is_script else set()
    if not used & _SEEN_INTO:
        return []
    try:
        found = await frameworks(interpreter("", directory, here=True))
    except NoInterpreter:
        return []  # a trial's failure says more
    names = {*used, "python"} if "torch" in used else used
    doubts = [each.doubt for each in found if each.doubt and each.package in names]
    return [f"{doubt}; with this one, trials can only be parked" for doubt in doubts]
