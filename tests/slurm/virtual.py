"""A Slurm of one machine: a controller and nodes by name, in a directory, for as long as a block.

    python -m tests.slurm.virtual /tmp/slurm 4      # until Ctrl-C; says what to export

It takes root, and Debian's `slurmctld slurmd slurm-client munge`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol", "munged")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_POLL_SECONDS = 0.1

_CONFIGURATION = """\
ClusterName=virtual
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=30
GresTypes=gpu
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """What keeps a Slurm from running here; "" if nothing does."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]
    if absent:
        return f"no Slurm here ({', '.join(absent)})"
    return "" if os.geteuid() == 0 else "no Slurm here: its daemons need root"


class Slurm:
    """It runs; `environment` is what its commands need."""

    def __init__(self, folder: Path, nodes: tuple[str, ...]) -> None:
        self.folder = folder
        self.nodes = nodes
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}

    def ask(self, *words: str, **variables: str) -> str:
        """What one of its commands prints."""
        return subprocess.run(
            words, env=self._all(variables), check=True, capture_output=True, text=True
        ).stdout

    def state(self, job: str) -> str:
        """The state of a job that Slurm still knows, such as RUNNING."""
        words = self.ask("scontrol", "show", "job", job).split()
        return next(word for word in words if word.startswith("JobState=")).partition("=")[2]

    def until(self, job: str, *states: str) -> None:
        """Wait until the job is in one of the states."""
        while self.state(job) not in states:
            time.sleep(_POLL_SECONDS)

    def _all(self, variables: Mapping[str, str] = {}) -> dict[str, str]:
        return {**os.environ, **self.environment, **variables}

    def start(self) -> Iterator[subprocess.Popen[bytes]]:
        """Start what is needed, one daemon after the other."""
        folder = self.folder
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        files = [f"--{name}={folder}/munge.{end}" for name, end in _MUNGE]
        yield self._daemon("munged", "--foreground", "--force", f"--key-file={key}", *files)
        while not (folder / "munge.sock").exists():
            time.sleep(_POLL_SECONDS)
        yield self._daemon("slurmctld", "-D", "-c")
        for name in self.nodes:
            yield self._daemon("slurmd", "-D", "-N", name)
        while self.ask("sinfo", "-h", "-N", "-o", "%T").split() != ["idle"] * len(self.nodes):
            time.sleep(_POLL_SECONDS)

    def _daemon(self, program: str, *words: str) -> subprocess.Popen[bytes]:
        path = shutil.which(program, path=_PATH)
        assert path is not None
        with (self.folder / f"{program}.out").open("ab") as log:
            return subprocess.Popen(
                [path, *words], env=self._all(), stdout=log, stderr=log, start_new_session=True
            )


_MUNGE = (
    ("socket", "sock"),
    ("pid-file", "pid"),
    ("log-file", "log"),
    ("seed-file", "seed"),
)


@contextmanager
def virtual(folder: Path, count: int, cores: int = 2) -> Iterator[Slurm]:
    """A Slurm of `count` nodes n1, n2, ... until the block ends, with all of its jobs."""
    folder.chmod(0o755)
    (folder / "state").mkdir()
    nodes = tuple(f"n{number}" for number in range(1, count + 1))
    host = socket.gethostname().split(".")[0]
    lines = [_CONFIGURATION.format(folder=folder, host=host, port=_free_port())]
    for name in nodes:
        (folder / f"spool.{name}").mkdir()
        where = f"NodeHostname={host} NodeAddr=127.0.0.1 Port={_free_port()}"
        lines.append(
            f"NodeName={name} {where} CPUs={cores} RealMemory=1000 Gres=gpu:2 State=UNKNOWN\n"
        )
    # Of a GPU Slurm looks at the number in its file's name alone: any device will do.
    (folder / "gres.conf").write_text("Name=gpu File=/dev/tty[0-1]\n")
    (folder / "slurm.conf").write_text("".join(lines))
    slurm = Slurm(folder, nodes)
    with ExitStack() as stack:
        for daemon in slurm.start():
            stack.callback(_end, daemon)
        stack.callback(_end_jobs, slurm)
        yield slurm


def _end_jobs(slurm: Slurm) -> None:
    """Daemons that end would leave their jobs running."""
    jobs = slurm.ask("squeue", "-h", "-o", "%A").split()
    if jobs:
        slurm.ask("scancel", "--signal=KILL", "--full", *jobs)
        slurm.ask("scancel", *jobs)
    while slurm.ask("squeue", "-h", "-o", "%A").split():
        time.sleep(_POLL_SECONDS)


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(10)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _main() -> None:
    if absent := missing():
        sys.exit(absent)
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    with virtual(folder, count) as slurm:
        print(f"export SLURM_CONF={slurm.environment['SLURM_CONF']}", flush=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    _main()
