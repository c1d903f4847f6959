"""Whether a policy that a package of this environment brings keeps what every policy promises.

Rule: nothing of a policy is imported here; `hermesd policy check` tries it out in its own process.
What this environment lacks, the head alone can know.
"""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import entry_points

from hermesctl.text import printable
from hermesctl.waiting import progress

GROUP = "hermes.policies"
COMMAND = (sys.executable, "-m", "hermesd.cli", "policy", "check")
PATIENCE_SECONDS = 20.0


async def distrust(policy: str) -> list[str]:
    """What to say of a policy of a package, as `plugin_label` writes it, that fails its check;
    nothing of any other."""
    name = policy.partition(":")[0]
    if not entry_points(group=GROUP, name=name):
        return []
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        policy,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            with progress(f"trying out the policy {printable(name)}"):
                said = (await process.communicate())[1]
    except TimeoutError:
        found = [f"no answer within {PATIENCE_SECONDS:.0f} s"]
    else:
        lines = said.decode("utf-8", "replace").splitlines()
        found = [line.removeprefix("hermesd: ") for line in lines]
        if not process.returncode:
            return []
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    first = printable(found[0].removeprefix(f"{policy}: ")) if found else "it failed"
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return [
        f"policy {printable(name)} fails its check: {first}{more}; where it fails, fifo decides:"
        f" `hermesd policy check {printable(policy)}` says all"
    ]
