"""Questions about an exported study, answered by the simulator of `hermesd` in a process of its
own.

Nothing is computed here. `hermesd` is in the same package and the same environment; running it as a
process keeps policies and numpy out of the client, and can be ended.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from hermesctl.errors import HermesError, UsageError
from hermesctl.sdk.local import HERMESD
from hermesctl.sdk.transfer import write_file
from hermesctl.text import printable
from hermesd import children

_REFUSED = 2


async def simulated(study: str, export: AsyncIterator[bytes], verb: str, *flags: str) -> Any:
    """What `hermesd VERB` says of the export of `study`: its JSON, read.

    Raises UsageError for what it refuses, HermesError if it fails.
    """
    with tempfile.TemporaryDirectory(prefix="hermesctl-") as folder:
        file = Path(folder) / "study.jsonl"
        await write_file(export, file, force=True)
        process = await asyncio.create_subprocess_exec(
            *HERMESD,
            verb,
            str(file),
            *flags,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            answer, said = await process.communicate()
        finally:
            await children.end(process)
    lines = said.decode(errors="replace").replace(str(file), study).splitlines()
    words = "\n".join(printable(line.removeprefix("hermesd: ")) for line in lines)
    if process.returncode == _REFUSED:
        raise UsageError(words)
    if process.returncode:
        raise HermesError(f"the simulation failed (exit code {process.returncode}):\n{words}")
    return json.loads(answer)
