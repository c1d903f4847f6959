"""What a study would be where no head answers: asked of `hermesd expand`, a process of its own.

Nothing is checked or expanded here: `hermesd` comes in the same wheel and says what a head of its
own version would.
"""

from __future__ import annotations

import asyncio
import sys

from hermesctl.errors import HermesError, UsageError
from hermesctl.sdk.connection import problems_of
from hermesctl.text import printable
from hermesd.pb.hermes.v1 import control_pb2 as pb

COMMAND = (sys.executable, "-m", "hermesd.cli", "expand")
_REFUSED = 2


async def expanded(request: pb.SubmitStudyRequest) -> pb.SubmitStudyResponse:
    """The answer to a request that is only to be validated.

    Raises UsageError with what is wrong, HermesError if it fails.
    """
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        answer, said = await process.communicate(request.SerializeToString())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == _REFUSED and (problems := problems_of(answer)):
        raise UsageError("", problems)
    if process.returncode:
        words = printable(said.decode(errors="replace"), keep="\n")
        raise HermesError(
            f"the study cannot be expanded (exit code {process.returncode}):\n{words}"
        )
    return pb.SubmitStudyResponse.FromString(answer)
