"""A training process that gives back a GPU's memory and goes on, in five ways.

Real networks of the paper in PyTorch, with SGD and momentum, one at a time on one GPU: by the
driver's checkpoint at an iteration boundary (with the caching allocator as it is, and emptied
before), by an image of the process that is made after that, by a checkpoint of the framework that a
process loads which stands ready, and as the first Hermes did in 2021 (save, end the process, start
Python, import, load). `away` ends when the driver counts none of the memory any more, `safe` when
all is on disk (0: never), `back` with the first step done. Whether the result is the same is told
by the weights' hash at the end, against a process that was never disturbed.
With `--beside`, instead, how trials share a GPU whose memory holds several: what one that waits
with its memory left there takes of it, what a switch between two such takes, how fast one trains
beside those that wait there, and beside those that the driver has moved away or is moving.
`python -m benchmarks.gpu [--rounds N] [--networks resnet50,vgg19] [--criu PATH]` as root on a
machine with an NVIDIA GPU; without CRIU there are no images.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.report import median, publish
from trainer_shim.host import image
from trainer_shim.host.cuda import CudaDriver
from trainer_shim.host.freeze import become_subreaper

NETWORKS = ("googlenet", "resnet50", "vgg19")
FREED_SECONDS = 20.0
STEPS = 3  # before each suspension
MANY_STEPS = 30  # whose median is a pace
PHASES = ("empty", "lock", "checkpoint", "restore", "unlock", "save", "load", "image", "process")

PROGRAM = """
import hashlib, json, os, sys, time
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
import torch, torchvision

network, device, batch, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.manual_seed(0)
torch.use_deterministic_algorithms(True, warn_only=True)
make = getattr(torchvision.models, network)
more = {"aux_logits": False, "init_weights": False} if network == "googlenet" else {}
torch.backends.cudnn.benchmark = False

def build():
    global model, optimizer, x, y
    model = make(**more).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    chance = torch.Generator().manual_seed(1)
    x = torch.randn(batch, 3, size, size, generator=chance).to(device)
    y = torch.randint(1000, (batch,), generator=chance).to(device)

def chance_of(device):
    return torch.cuda.get_rng_state() if device == "cuda" else torch.get_rng_state()

def wait():
    if device == "cuda":
        torch.cuda.synchronize()

def train(steps):
    global seconds
    seconds = []
    for _ in range(steps):
        began = time.monotonic()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if steps > 5:  # not more waits than the other figures were measured with
            wait()
        seconds.append(time.monotonic() - began)
    wait()

def do(word, *rest):
    if word == "build":
        build()
    elif word == "train":
        train(int(rest[0]))
        return {"steps": seconds}
    elif word == "empty" and device == "cuda":
        torch.cuda.empty_cache()
    elif word == "save":
        with open(rest[0], "wb") as file:
            torch.save([model.state_dict(), optimizer.state_dict(), chance_of(device)], file)
            file.flush()
            os.fsync(file.fileno())
        return {"bytes": os.path.getsize(rest[0])}
    elif word == "load":
        build()
        weights, slots, chance = torch.load(rest[0], map_location=device)
        model.load_state_dict(weights)
        optimizer.load_state_dict(slots)
        if device == "cuda":
            torch.cuda.set_rng_state(chance.cpu())
    elif word == "hash":
        found = hashlib.sha256()
        momenta = [each["momentum_buffer"] for each in optimizer.state.values()]
        for tensor in [*model.state_dict().values(), *momenta]:
            found.update(tensor.detach().cpu().numpy().tobytes())
        return {"hash": found.hexdigest()}
    elif word == "memory" and device == "cuda":
        return {"live": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved()}
    return {}

print("{}", flush=True)
for line in sys.stdin:
    began = time.monotonic()
    said = do(*line.split())
    wait()
    print(json.dumps({"seconds": time.monotonic() - began, **said}), flush=True)
"""


class Gpu:
    """The first GPU, as the driver's management library sees it; of a CPU it tells nothing."""

    def __init__(self, is_real: bool) -> None:
        self._nvml: Any = None
        if is_real:
            import pynvml

            pynvml.nvmlInit()
            self._nvml, self._gpu = pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)

    def used(self) -> int:
        """Bytes."""
        return int(self._nvml.nvmlDeviceGetMemoryInfo(self._gpu).used) if self._nvml else 0

    def holds(self, pid: int) -> bool:
        """Whether the process computes there."""
        if not self._nvml:
            return False
        listed = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._gpu)
        return pid in {process.pid for process in listed}

    def await_free(self, pid: int) -> bool:
        """Wait until the process is not there any more; whether that came."""
        until = time.monotonic() + FREED_SECONDS
        while self.holds(pid):
            if time.monotonic() > until:
                return False
            time.sleep(0.001)
        return True


class Trainee:
    """A training process that does what it is told."""

    def __init__(self, pid: int, tell: int, hear: int) -> None:
        self.pid = pid
        self._tell, self._hear = open(tell, "w"), open(hear)  # noqa: SIM115

    @classmethod
    def begun(cls, arguments: Sequence[str], folder: Path) -> Trainee:
        """A new one."""
        orders, tell, hear, answers = *os.pipe(), *os.pipe()
        with (folder / "errors").open("a") as errors:
            process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *arguments],
                stdin=orders,
                stdout=answers,
                stderr=errors,
                start_new_session=True,
            )
        process.returncode = 0  # it is waited for by its number, as one that was brought back
        os.close(orders)
        os.close(answers)
        return cls(process.pid, tell, hear)

    def ready(self) -> Trainee:
        """Once it has imported its framework."""
        self._hear.readline()
        return self

    def do(self, *words: str) -> dict[str, Any]:
        """Have it do something, and wait for that."""
        self.begin(*words)
        return self.done()

    def begin(self, *words: str) -> None:
        """Have it do something."""
        self._tell.write(" ".join(words) + "\n")
        self._tell.flush()

    def done(self) -> dict[str, Any]:
        """Wait for what it was begun with."""
        said: dict[str, Any] = json.loads(self._hear.readline())
        return said

    def pipes(self) -> list[str]:
        """The names of its ends."""
        return [os.readlink(f"/proc/{self.pid}/fd/{fd}") for fd in (0, 1)]

    def resident(self) -> int:
        """Bytes of its memory on the host."""
        with suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        return 0

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._tell.close()
        self._hear.close()


class Way:
    """How a process gives a GPU back and goes on."""

    name = ""

    def __init__(self, arguments: Sequence[str], folder: Path, waiting: list[Trainee]) -> None:
        self.arguments = arguments
        self.folder = folder
        self.file = str(folder / "saved")
        self.waiting = waiting  # processes that have imported their framework
        #: The seconds that each phase took, by its name.
        self.phases: dict[str, list[float]] = {}

    def away(self, trainee: Trainee) -> None:
        """Have it begin to give back what it holds."""
        raise NotImplementedError

    def keep(self, trainee: Trainee) -> None:
        """Have what was given back be safe, if it is to be."""

    def back(self, trainee: Trainee) -> Trainee:
        """The process that can go on."""
        raise NotImplementedError

    def timed(self, name: str, work: Callable[[], object]) -> None:
        began = time.monotonic()
        work()
        self.phases.setdefault(name, []).append(time.monotonic() - began)


class ByDriver(Way):
    """The driver's checkpoint of the process as it is."""

    name = "driver"

    def __init__(self, arguments: Sequence[str], folder: Path, waiting: list[Trainee]) -> None:
        super().__init__(arguments, folder, waiting)
        self._driver = CudaDriver()

    def away(self, trainee: Trainee) -> None:
        self.timed("lock", lambda: self._driver.lock(trainee.pid))
        self.timed("checkpoint", lambda: self._driver.checkpoint(trainee.pid))

    def back(self, trainee: Trainee) -> Trainee:
        self.timed("restore", lambda: self._driver.restore(trainee.pid))
        self.timed("unlock", lambda: self._driver.unlock(trainee.pid))
        return trainee


class ByDriverEmptied(ByDriver):
    """The same, once PyTorch has given back the memory that it keeps for later."""

    name = "driver, emptied"

    def away(self, trainee: Trainee) -> None:
        self.timed("empty", lambda: trainee.do("empty"))
        super().away(trainee)


class ByImage(ByDriverEmptied):
    """An image of the process, made once the driver has moved what it had there."""

    name = "image"
    criu = ""
    _path = ""
    _pipes: Sequence[str] = ()

    def keep(self, trainee: Trainee) -> None:
        self._pipes = trainee.pipes()
        self.timed("image", lambda: self._take(trainee))
        trainee.end()

    def _take(self, trainee: Trainee) -> None:
        kept, work = self.folder / "images", self.folder / "work"
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir()
        work.mkdir(exist_ok=True)
        os.kill(trainee.pid, signal.SIGSTOP)
        os.waitpid(trainee.pid, os.WUNTRACED)
        fields = {"trial": "benchmark", "attempt": 1, "step": 0}
        source = image.Source(trainee.pid, str(work), {})
        said = image.take(
            self.criu, source, str(kept), "image", fields, str(self.folder), lambda _: None
        )
        self._path = str(said["path"])

    def back(self, trainee: Trainee) -> Trainee:
        orders, tell, hear, answers = *os.pipe(), *os.pipe()
        ends = dict(zip(self._pipes, (orders, answers), strict=True))
        self.timed("process", lambda: self._bring_back(ends))
        os.close(orders)
        os.close(answers)
        os.kill(trainee.pid, signal.SIGCONT)
        return super().back(Trainee(trainee.pid, tell, hear))

    def _bring_back(self, ends: dict[str, int]) -> None:
        pid = os.fork()
        if pid == 0:
            try:
                work = str(self.folder / "work")
                image.bring_back(self.criu, self._path, ends, work, str(self.folder))
            finally:
                os._exit(1)
        _, status = os.waitpid(pid, 0)
        if status:
            raise SystemExit(image.why_not(str(self.folder), os.waitstatus_to_exitcode(status)))


class Anew(Way):
    """The method of 2021: save, end the process, start Python, import, load."""

    name = "2021"

    def away(self, trainee: Trainee) -> None:
        self.timed("save", lambda: trainee.do("save", self.file))
        trainee.end()

    def back(self, trainee: Trainee) -> Trainee:
        fresh = self._process()
        self.timed("load", lambda: fresh.do("load", self.file))
        return fresh

    def _process(self) -> Trainee:
        return Trainee.begun(self.arguments, self.folder).ready()


class ByCheckpoint(Anew):
    """A checkpoint, loaded by a process that has imported its framework ahead of time."""

    name = "checkpoint"

    def _process(self) -> Trainee:
        return self.waiting.pop()


WAYS: Sequence[type[Way]] = (ByDriver, ByDriverEmptied, ByImage, ByCheckpoint, Anew)


def undisturbed(trainee: Trainee, steps: int) -> str:
    """The hash after so many steps."""
    trainee.do("build")
    trainee.do("train", str(steps))
    try:
        return str(trainee.do("hash")["hash"])
    finally:
        trainee.end()


def row(way: Way, gpu: Gpu, rounds: int, same: str) -> dict[str, Any]:
    """What the way takes of one network."""
    trainee = way.waiting.pop()
    trainee.do("build")
    away, safe, back, freed, host = [], [], [], [], []
    memory: dict[str, int] = {}
    for _ in range(rounds):
        trainee.do("train", str(STEPS))
        memory = trainee.do("memory")
        used, resident = gpu.used(), trainee.resident()
        began = time.monotonic()
        way.away(trainee)
        assert gpu.await_free(trainee.pid), "the driver still counts its memory"
        away.append(time.monotonic() - began)
        freed.append(used - gpu.used())
        host.append(trainee.resident() - resident)
        way.keep(trainee)
        safe.append(time.monotonic() - began)
        began = time.monotonic()
        trainee = way.back(trainee)
        trainee.do("train", "1")
        back.append(time.monotonic() - began)
    is_same = trainee.do("hash")["hash"] == same
    trainee.end()
    phases = {f"{name}_p50_ms": median(each) * 1e3 for name, each in way.phases.items()}
    is_safe = not {"save", "image"}.isdisjoint(way.phases)
    return {
        "network": way.arguments[0],
        "way": way.name,
        "count": rounds,
        "away_p50_ms": median(away) * 1e3,
        "safe_p50_ms": median(safe) * 1e3 if is_safe else 0.0,
        "back_p50_ms": median(back) * 1e3,
        "freed_mb": median(freed) / 1e6,
        "host_mb": median(host) / 1e6,
        "live_mb": memory.get("live", 0) / 1e6,
        "reserved_mb": memory.get("reserved", 0) / 1e6,
        "exact": "yes" if is_same else "no",
        **{f"{name}_p50_ms": phases.get(f"{name}_p50_ms", 0.0) for name in PHASES},
    }


def rows_of(
    arguments: Sequence[str], folder: Path, ways: Sequence[type[Way]], gpu: Gpu, rounds: int
) -> list[dict[str, Any]]:
    """What each way takes of one network."""
    begun = [Trainee.begun(arguments, folder) for _ in range(1 + len(ways) + rounds)]
    waiting = [each.ready() for each in begun]
    same = undisturbed(waiting.pop(), rounds * (STEPS + 1))
    rows = []
    for kind in ways:
        rows.append(row(kind(arguments, folder, waiting), gpu, rounds, same))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


class NoDriver:
    """Of a CPU, on which nothing is moved."""

    def __getattr__(self, name: str) -> Callable[[int], None]:
        return lambda pid: None


def driver_of(device: str) -> CudaDriver | NoDriver:
    """What moves what is on the device."""
    return CudaDriver() if device == "cuda" else NoDriver()


class Beside:
    """Trials of one network that share a GPU; each figure is a median."""

    def __init__(self, arguments: Sequence[str], folder: Path, gpu: Gpu) -> None:
        self._arguments, self._folder = arguments, folder
        self._network, self._gpu = arguments[0], gpu
        self._driver = driver_of(arguments[1])
        self.rows: list[dict[str, Any]] = []

    def say(self, what: str, parked: int, **figures: float) -> None:
        """Keep a row."""
        row = {"network": self._network, "what": what, "parked": parked, **figures}
        print(json.dumps(row), file=sys.stderr, flush=True)
        self.rows.append(row)

    def run(self, counts: Sequence[int], rounds: int) -> None:
        """All of it; `counts` are how many wait beside the one that trains."""
        processes = range(1 + max(counts))
        begun = [Trainee.begun(self._arguments, self._folder) for _ in processes]
        runs, *waits = [each.ready() for each in begun]
        self._train(runs, "nothing", 0)
        for count in range(1, max(counts) + 1):
            runs.do("empty")
            used = self._gpu.used()
            other = waits[count - 1]
            other.do("build")
            other.do("train", str(STEPS))
            other.do("empty")
            if count in counts:
                held = self._gpu.used() - used
                self._train(runs, "parked, on the GPU", count, held_mb=held / 1e6)
        self._switches(runs, waits[0], rounds)
        for each in waits:
            self._driver.lock(each.pid)
            self._driver.checkpoint(each.pid)
        self._train(runs, "parked, moved away", len(waits))
        self._overlap(runs, waits[0], rounds)
        for each in (runs, *waits):
            each.end()

    def _train(self, runs: Trainee, what: str, count: int, **more: float) -> None:
        if not count:
            runs.do("build")
        runs.do("train", str(STEPS))
        steps = runs.do("train", str(MANY_STEPS))["steps"]
        self.say(f"trains beside {what}", count, step_p50_ms=median(steps) * 1e3, **more)

    def _switches(self, one: Trainee, other: Trainee, rounds: int) -> None:
        """From one to the other and back, by giving the cache back alone."""
        seconds = []
        for _ in range(rounds):
            for ends, begins in ((one, other), (other, one)):
                ends.do("train", str(STEPS))
                began = time.monotonic()
                ends.do("empty")
                begins.do("train", "1")
                seconds.append(time.monotonic() - began)
                begins.do("train", str(STEPS))
        again = one.do("train", str(MANY_STEPS))["steps"]
        self.say(
            "switch, memory left on the GPU", 1,
            switch_p50_ms=median(seconds) * 1e3, step_p50_ms=median(again) * 1e3,
        )  # fmt: skip

    def _overlap(self, runs: Trainee, comes: Trainee, rounds: int) -> None:
        """The one that was moved away is put back while the other trains, and the other way."""
        moves = {"restore": self._driver.restore, "checkpoint": self._driver.checkpoint}
        found: dict[str, list[dict[str, float]]] = {name: [] for name in moves}
        gaps, locks = [], []
        for _ in range(rounds):
            found["restore"].append(self._meanwhile(runs, partial(moves["restore"], comes.pid)))
            runs.do("train", str(STEPS))
            runs.do("empty")
            began = time.monotonic()
            self._driver.lock(runs.pid)
            locks.append(time.monotonic() - began)
            self._driver.unlock(comes.pid)
            comes.do("train", "1")
            gaps.append(time.monotonic() - began)
            found["checkpoint"].append(
                self._meanwhile(comes, partial(moves["checkpoint"], runs.pid))
            )
            runs, comes = comes, runs
        self._driver.restore(comes.pid)
        self._driver.unlock(comes.pid)
        for name, each in found.items():
            figures = {key: median([one[key] for one in each]) for key in each[0]}
            self.say(f"{name} of another while one trains", 1, **figures)
        self.say(
            "switch, restored ahead", 1,
            switch_p50_ms=median(gaps) * 1e3, lock_p50_ms=median(locks) * 1e3,
        )  # fmt: skip

    def _meanwhile(self, runs: Trainee, move: Callable[[], None]) -> dict[str, float]:
        """How long a move takes, and what the steps of the one that trains meanwhile do."""
        runs.do("train", str(STEPS))
        before = runs.do("train", str(MANY_STEPS))["steps"]
        runs.begin("train", str(4 * MANY_STEPS))
        time.sleep(median(before) * 5)
        began = time.monotonic()
        move()
        took = time.monotonic() - began
        during = runs.done()["steps"]
        # Those that had begun before it was over, but for the ones before it.
        share, at = [], 0.0
        for step in during:
            at += step
            if median(before) * 5 < at <= median(before) * 5 + took:
                share.append(step)
        share = share or during
        return {
            "move_ms": took * 1e3,
            "step_p50_ms": median(before) * 1e3,
            "step_meanwhile_p50_ms": median(share) * 1e3,
            "step_meanwhile_max_ms": max(share) * 1e3,
            "slower_by": sum(share) / len(share) / median(before) - 1,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of each network and way (5)")
    parser.add_argument("--networks", default=",".join(NETWORKS), help="of torchvision")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--pixels", type=int, default=224, help="a side of an image")
    parser.add_argument("--device", default="cuda", help="cpu: only to try the benchmark itself")
    parser.add_argument("--criu", default="criu", help="where CRIU is, for images")
    parser.add_argument("--beside", metavar="N,N,...", help="how many wait beside one that trains")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    become_subreaper()  # a process that is brought back is a child of this one
    ByImage.criu = shutil.which(options.criu) or ""
    rows: list[dict[str, Any]] = []
    gpu = Gpu(options.device == "cuda")
    ways = [kind for kind in WAYS if kind is not ByImage or ByImage.criu]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            for network in options.networks.split(","):
                arguments = (network, options.device, str(options.batch), str(options.pixels))
                if options.beside:
                    beside = Beside(arguments, folder, gpu)
                    beside.run([int(n) for n in options.beside.split(",")], options.rounds)
                    rows += beside.rows
                else:
                    rows += rows_of(arguments, folder, ways, gpu, options.rounds)
        except (BrokenPipeError, ValueError):
            raise SystemExit(f"a process has failed: {(folder / 'errors').read_text()}") from None
    columns = list(dict.fromkeys(name for each in rows for name in each))
    name = "gpu_beside" if options.beside else "gpu"
    table = [[each.get(column, 0.0) for column in columns] for each in rows]
    publish(name, columns, table, options.out)


if __name__ == "__main__":
    main()
