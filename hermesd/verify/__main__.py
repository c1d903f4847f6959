"""`python -m hermesd.verify FOLDER`: the engine of `hermesctl verify-resume`.

FOLDER holds `request.pb`, a submission, and `code.tar`. Standard output has one JSON object per
line: how far each run is, and in the end the certificate, or why there is none. The process ends
when its standard input does, and everything that it has started ends with it.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from hermesd import logs
from hermesd.core.model import Goal, Processes, Study
from hermesd.core.node.messages import Work
from hermesd.expecting import StateAway
from hermesd.logs import get_logger
from hermesd.node.machine import images
from hermesd.node.machine.devices.nvml import Gpus
from hermesd.node.machine.devices.rack import Rack
from hermesd.node.machine.images import ProcessImages
from hermesd.node.runner.zygotes import Zygotes
from hermesd.node.storage import code
from hermesd.node.storage.trial_folder import TrialFolder
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.refusal import FieldError, Refused
from hermesd.study.submission import Draft, Submission, draft
from hermesd.verify.arm import ArmFailed, Bench
from hermesd.verify.branches import BranchVerdict, certify_tree
from hermesd.verify.certificate import Certificate, ResumeVerdict, certify

_TRIAL = "verify/1"

log = get_logger()


def main(arguments: Sequence[str]) -> None:
    """Read the request, run, and tell."""
    parser = argparse.ArgumentParser(prog="hermesd.verify")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--trial", type=int, required=True)
    parser.add_argument("--suspend-at", type=lambda text: [int(one) for one in text.split(",")])
    parser.add_argument("--tree", type=int)
    given = parser.parse_args(arguments)
    logs.configure()
    try:
        asyncio.run(_serve(given))
    except Refused as refused:
        errors = [dataclasses.asdict(error) for error in refused.errors]
        _tell("refused", errors=errors)
    except (ArmFailed, code.CodeError) as error:
        _tell("failed", reason=str(error))


async def _serve(given: argparse.Namespace) -> None:
    """Certify until done, or until whoever started this is gone or wants no more of it."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)

    def closed() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            task.cancel()

    loop.add_reader(0, closed)
    try:
        await _certify(given)
    except asyncio.CancelledError:
        _tell("failed", reason="it was interrupted")


async def _certify(given: argparse.Namespace) -> None:
    folder: Path = given.folder
    request = pb.SubmitStudyRequest.FromString((folder / "request.pb").read_bytes())
    study = draft(_submission(request))
    snapshot = await code.fetch(request.code_sha256, _parts(folder / "code.tar"), folder / "code")
    shim = folder / "shim"
    shim.mkdir()
    (shim / "trainer_shim").symlink_to(Path(code.__file__).resolve().parents[3] / "trainer_shim")
    made = await images.detect(os.environ.get("HERMES_NODE_CRIU", "criu"), folder, shim)
    gpus, rack = await _gpus(study.study.devices, folder, shim, made)
    devices = list(rack.devices)
    ranks = _ranks(study.study, rack)
    zygotes = Zygotes(folder, shim, worlds=bool(made.world))
    place = TrialFolder(folder / "trials", folder, _TRIAL)

    def bench(number: int) -> Bench:
        work = _work(study, number)
        return Bench(
            place, snapshot, shim, zygotes, work, os.environ, ranks, made.criu, made.world,
            rack.environment(devices), bool(devices) and rack.parks(devices), gpus.are_imaged,
        )  # fmt: skip

    def said(run: str, step: int, of: int) -> None:
        _tell("progress", run=run, step=step, steps=of)

    try:
        if given.tree is None:
            found = await certify(bench(given.trial), given.steps, given.suspend_at, said)
            _tell_certificate(found, bench(given.trial).work, given.trial)
        else:
            specs = study.accepted("verify", "", 0.0)[1][: given.tree]
            benches = [bench(spec.number) for spec in specs]
            kept = folder / "kept"
            kept.mkdir()
            _tell_tree(await certify_tree(benches, specs, given.steps, kept, said))
    finally:
        await zygotes.close()


async def _gpus(count: int, folder: Path, shim: Path, made: ProcessImages) -> tuple[Gpus, Rack]:
    """The GPUs that a trial of so many devices has here: the machine's first, or those first named
    in CUDA_VISIBLE_DEVICES. None if there are not so many, or a node would not park a trial on the
    only one: the program sees then what it sees by hand."""
    first = ",".join(map(str, range(count)))
    named = os.environ.get("CUDA_VISIBLE_DEVICES", first).split(",")[:count]
    gpus = Gpus([name for name in named if name])
    rack = Rack([gpus])
    try:
        await rack.find("verify")
    except StateAway as error:
        log.info("no GPU", reason=str(error))
        return gpus, rack
    await images.try_gpus(gpus, folder, shim, made)
    log.info(gpus.fact())
    has_enough = len(rack.devices) == count and (count > 1 or rack.parks(list(rack.devices)))
    return gpus, rack if has_enough else Rack([])


def _submission(request: pb.SubmitStudyRequest) -> Submission:
    environment = tuple((one.name, one.value.string_value) for one in request.environment)
    directory = request.submit_directory
    return Submission(request.spec, request.code_sha256, directory, environment)


def _work(study: Draft, number: int) -> Work:
    if not 1 <= number <= len(study.argvs):
        raise Refused(FieldError("trial", str(number), f"from 1 to {len(study.argvs)}"))
    _, trials = study.accepted("verify", "", 0.0)
    spec = trials[number - 1]
    program = dataclasses.replace(study.study.program, argv=spec.argv)
    signal = study.study.signal
    return Work(program, spec.given, signal, Goal.MINIMIZE, spec.seed, spec.sequences)


def _ranks(study: Study, rack: Rack) -> list[Mapping[str, str]]:
    """What each of a trial's processes finds in its environment besides, if it has several; of a
    range of devices, it has the fewest."""
    if study.processes is Processes.ONE or (study.processes is None and study.devices == 1):
        return []
    if study.processes is Processes.WORKERS and rack.devices:
        return [rack.environment([name]) for name in rack.devices]
    return [{} for _ in range(study.devices)]


async def _parts(path: Path) -> AsyncIterator[bytes]:
    yield path.read_bytes()


def _tell_certificate(found: Certificate, work: Work, trial: int) -> None:
    said = dataclasses.asdict(found)
    _tell(
        "certificate", trial=trial, parameters=dict(work.parameters), equal=found.is_equal, **said
    )


def _tell_tree(found: Sequence[BranchVerdict]) -> None:
    run = [each.verdict for each in found if each.verdict is not ResumeVerdict.NOT_RUN]
    equal = bool(run) and all(each is ResumeVerdict.EQUAL for each in run)
    _tell("certificate", equal=equal, trials=[dataclasses.asdict(each) for each in found])


def _tell(kind: str, **fields: object) -> None:
    print(json.dumps({"kind": kind, **fields}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
