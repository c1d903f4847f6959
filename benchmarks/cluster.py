"""What a cluster costs its head, how fast checkpoints move, and how soon a dead node's trials do.

`cluster`: one real head, TLS as between machines, and simulated nodes (`benchmarks/swarm.py`), each
with a trial that reports once a second. The head's processor time and memory, and what nodes wait:
for a lease since what it answers was sent, to hear that a report is on the head's disk (which is
said every few seconds), and for the command that answers the end of a quantum. `transport_cores` is
what the same messages take of a server that does nothing with them. `late` is by how
much the nodes' own process falls behind, which is in all of these. `moves`: two real node daemons.
A checkpoint's copy, by the head's journal from the order to the word that it is there and verified;
and from the kill -9 of all of a node until its trial runs at the other one, by which time a lease
of that length has to be over 1.3 times.
`python -m benchmarks.cluster [--nodes N ...] [--seconds S] [--quantum S] [--megabytes M]
[--copies N] [--leases S ...] [--quick]`; with `--quantum inf` no quantum ends.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from benchmarks.daemons import Daemons, cpu_seconds, daemons, resident_kib, until
from benchmarks.report import median, publish
from hermesctl import Client
from hermesctl.sdk.events import EventKind
from hermesd.head.security.authority import Authority
from hermesd.security.enrollment import key_pem, write_private
from hermesd.security.identity import Identity, Role

# Every quantum is over once.
SETTLE_SECONDS = 12
COLUMNS = [
    "nodes", "connect_s", "events_per_s", "head_cores", "transport_cores", "head_mb",
    "kib_per_node", "lease_p50_ms", "lease_p99_ms", "safe_p50_ms", "safe_p99_ms",
    "command_p50_ms", "command_p99_ms", "late_p99_ms", "streams_lost",
]  # fmt: skip
LONG = """
import argparse, json, os, pathlib, time
import trainer_shim
parser = argparse.ArgumentParser()
parser.add_argument("--megabytes", type=int)
parser.add_argument("--rate", type=float)
arguments = parser.parse_args()
trial, block = trainer_shim.attach(), os.urandom(1 << 20)
def save(folder):
    with open(pathlib.Path(folder) / "weights", "wb") as file:
        for _ in range(arguments.megabytes):
            file.write(block)
step = trial.resume.step if trial.resume else 0
while True:
    time.sleep(0.02)
    step += 1
    trial.report(step, loss=1 / step, save=save)
"""


def submit(hermes: Client, folder: Path, trials: int, megabytes: int) -> str:
    """A study of so many trials that never end; its id."""
    code = folder / "code"
    code.mkdir()
    (code / "train.py").write_text(LONG)
    rates = [float(number + 1) for number in range(trials)]
    study = {
        "name": "endless",
        "program": "train.py",
        "method": "grid",
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": {"rate": {"values": rates}, "megabytes": {"value": megabytes}},
        "suspend": {"durability_seconds": 1},
        "schedule": {"policy": {"name": "round_robin", "quantum_seconds": 10}},
    }
    return hermes.submit(study, directory=code).study


# Many nodes.


def enroll_all(head: Daemons, count: int) -> Path:
    """Certificates for so many nodes, as the head's own authority gives them; their folders.

    Before the head starts: an enrollment of its own for each would measure just that.
    """
    state, members = head.folder / "head", head.folder / "members"
    state.mkdir()
    authority = Authority(state / "authority")
    for number in range(count):
        name = f"n{number}"
        folder = members / name
        folder.mkdir(parents=True)
        key = ec.generate_private_key(ec.SECP256R1())
        request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
        signed = authority.issue(Identity(Role.NODE, name), request.sign(key, hashes.SHA256()))
        (folder / "authority.crt").write_bytes(authority.roots_pem)
        write_private(folder / "member.key", key_pem(key))
        (folder / "member.crt").write_bytes(signed)
    return members


@contextmanager
def swarm(head: Daemons, members: Path, quantum: float) -> Iterator[subprocess.Popen[str]]:
    """The simulated nodes, with quanta of so many seconds, for the length of a block."""
    words = ["nodes", head.address, str(members), str(quantum)]
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.swarm", *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def told(process: subprocess.Popen[str], line: str = "") -> str:
    """The swarm's next line, after one to it."""
    assert process.stdin is not None
    assert process.stdout is not None
    if line:
        print(line, file=process.stdin, flush=True)
    return process.stdout.readline()


def under_nodes(count: int, seconds: float, quantum: float) -> list[str | float]:
    """A row: what so many nodes cost the head, and what they wait."""
    with daemons() as head:
        members = enroll_all(head, count)
        pid = head.start_head()
        before = resident_kib(pid)
        with swarm(head, members, quantum) as nodes, head.client() as hermes:
            storm = float(told(nodes).split()[1])
            submit(hermes, head.folder, count, 0)
            told(nodes, f"measure {SETTLE_SECONDS}")
            begun, used = time.monotonic(), cpu_seconds(pid)
            seen = json.loads(told(nodes, f"measure {seconds}"))
            cores = (cpu_seconds(pid) - used) / (time.monotonic() - begun)
            memory = resident_kib(pid)
        head.kill("head")
        transport = transport_cores(head, members, seconds, quantum)
        kinds = [seen.get(kind, (0, 0.0, 0.0)) for kind in ("lease", "safe", "command")]
        times = [1e3 * value for kind in kinds for value in kind[1:]]
        return [
            count, storm, seen["safe"][0] / seconds, cores, transport, memory / 1024,
            (memory - before) / count, *times, 1e3 * seen["late"][2], seen["dropped"],
        ]  # fmt: skip


def transport_cores(head: Daemons, members: Path, seconds: float, quantum: float) -> float:
    """What the same nodes' messages take of a server at the head's place that does nothing else."""
    words = ["serve", head.address, str(head.folder / "head")]
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.swarm", *words], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            server.stdout.readline()
            with swarm(head, members, quantum) as nodes:
                told(nodes)
                told(nodes, f"measure {SETTLE_SECONDS}")
                begun, used = time.monotonic(), cpu_seconds(server.pid)
                told(nodes, f"measure {seconds}")
                return (cpu_seconds(server.pid) - used) / (time.monotonic() - begun)
        finally:
            server.kill()


# Moves.


def copies(megabytes: int, count: int) -> list[float]:
    """Seconds that copies of a checkpoint of that size took, from the order to its answer."""
    with daemons() as head, _pair(head) as hermes:
        study = submit(hermes, head.folder, 1, megabytes)
        found: list[float] = []
        while len(found) < count:
            found = _copies(b"".join(hermes.export(study)).splitlines())
            time.sleep(1)
        return found[:count]


def _copies(lines: Sequence[bytes]) -> list[float]:
    asked: dict[str, float] = {}
    found = []
    for line in map(json.loads, lines):
        if line.get("kind") == "Copy":
            asked[line["body"]["checkpoint"]] = line["at"]
        elif line.get("kind") == "Copied":
            found.append(line["at"] - asked[line["body"]["checkpoint"]])
    return found


def failover(lease: float) -> float:
    """Seconds from the death of a node until its trial trains at another one."""
    with (
        daemons(HERMES_HEAD_LEASE_SECONDS=str(lease)) as head,
        _pair(head) as hermes,
    ):
        trial = f"{submit(hermes, head.folder, 1, 1)}/1"

        def has_copy() -> bool:
            checkpoint = hermes.trial(trial).trial.checkpoint
            return checkpoint is not None and len(checkpoint.nodes) > 1

        until(has_copy)
        detail = hermes.trial(trial).trial
        head.kill(detail.device.partition("/")[0])
        died, attempt = time.monotonic(), detail.attempt
        for event in hermes.events(trial.partition("/")[0]):
            if event.kind is EventKind.STARTED and event.attempt > attempt:
                return time.monotonic() - died
        raise AssertionError("the journal ended")


@contextmanager
def _pair(head: Daemons) -> Iterator[Client]:
    """Two nodes at the head, and a client."""
    head.start_head()
    for name in ("left", "right"):
        head.join(name)
    with head.client() as hermes:
        yield hermes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[10, 100, 1000])
    parser.add_argument("--seconds", type=float, default=60, help="of measuring (60)")
    parser.add_argument("--quantum", type=float, default=10.0, help="seconds of one (10)")
    parser.add_argument("--megabytes", type=int, default=256, help="of a checkpoint (256)")
    parser.add_argument("--copies", type=int, default=9, help="of it (9)")
    parser.add_argument("--leases", type=float, nargs="*", default=[10.0, 30.0])
    parser.add_argument("--quick", action="store_true", help="50 nodes, 3 copies, one lease")
    options = parser.parse_args()
    if options.quick:
        options.nodes, options.seconds, options.copies = [50], 10, 3
        options.leases = [10.0]
    if options.nodes:
        rows = [under_nodes(n, options.seconds, options.quantum) for n in options.nodes]
        publish("cluster", COLUMNS, rows)
    moves: list[list[str | float]] = []
    if options.copies:
        seconds = copies(options.megabytes, options.copies)
        rates = [options.megabytes * 2**20 / 1e6 / each for each in seconds]
        what = f"copy of a checkpoint of {options.megabytes} MiB, MB/s"
        moves.append([what, len(rates), median(rates), min(rates), max(rates)])
    for lease in options.leases:
        taken = failover(lease)
        what = f"seconds from a node's death to its trial elsewhere, lease of {lease:g} s"
        moves.append([what, 1, taken, taken, taken])
    if moves:
        publish("cluster_moves", ["what", "times", "median", "low", "high"], moves)


if __name__ == "__main__":
    main()
