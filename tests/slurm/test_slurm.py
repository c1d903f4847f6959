"""Nodes that a real Slurm lends: launched, trained on, and left without a loss.

The controller, its nodes and the tasks are real processes on this machine (`virtual`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.test_guests import guest, last_loss, restored, study, undisturbed, watching
from tests.e2e.test_joining import Place
from tests.slurm.virtual import Slurm, missing, virtual

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.timeout(400),
]
RATES = (0.001, 0.002)


class Site:
    """A head, and a Slurm of two nodes that have what looks like GPUs."""

    def __init__(self, place: Place, slurm: Slurm) -> None:
        self.place = place
        self.slurm = slurm
        self.share = place.folder / "share"
        self.tmp = place.folder / "tmp"
        self.tmp.mkdir()
        self.client = watching(place)
        place.environment.update({**slurm.environment, "TMPDIR": str(self.tmp)})

    def launch(self, *words: str) -> str:
        """The job of two nodes."""
        told = self.place.ctl(
            "cluster", "launch", "--slurm", "--nodes", "2", "--time", "1h", *words,
            "--share", str(self.share), "-o", "json", admin=True,
        )  # fmt: skip
        return str(json.loads(told)["job"])

    def nodes(self) -> set[str]:
        return {node.id for node in self.client.nodes()}

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something, for as long as the test may take."""
        while not holds():
            pass

    def environment_of(self, name: str) -> dict[str, str]:
        """That of the daemon of a node."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and f"\0--name\0{name}\0" in text(entry / "cmdline"):
                words = text(entry / "environ").split("\0")
                return dict(word.split("=", 1) for word in words if "=" in word)
        raise AssertionError(f"no daemon of {name}")


def text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with virtual(tmp_path_factory.mktemp("v"), 2) as running:
        yield running


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory, slurm: Slurm) -> Iterator[Site]:
    place = Place(tmp_path_factory.mktemp("s"))
    with place.daemon("head"):
        site = Site(place, slurm)
        with site.client:
            yield site


def named(job: str, suffix: str = "") -> set[str]:
    return {f"n{number}-{job}{suffix}" for number in (1, 2)}


def test_a_study_goes_on_when_the_job_that_it_ran_in_ends(site: Site) -> None:
    program, ends = study(site.place.folder)
    job = site.launch("--cpus-per-node", "1")
    site.until(lambda: site.nodes() == named(job))
    grid = f"rate={','.join(map(str, RATES))}"
    site.place.ctl("submit", str(program), "--grid", grid, admin=True)
    site.until(lambda: all(trial.step >= 50 for trial in site.client.trials("train")))
    token = site.place.folder / "token"
    token.write_text(site.place.ctl("node", "token", admin=True).split()[4])
    with guest(site.place, "stays", token):
        # What Slurm does so long before the time limit.
        site.slurm.ask("scancel", "--signal=USR1", job)
        site.slurm.until(job, "COMPLETED")
        assert site.nodes() == {"stays"}
        assert list(site.tmp.glob("hermes-*")) == [], "they leave nothing behind"
        [folder] = site.share.iterdir()
        assert not (folder / "token").exists(), "nor what would let another in"
        site.until(lambda: any(t.state == "running" for t in site.client.trials("train")))
        ends.touch()
        assert site.client.wait("train").study.finished
        for rate, trial in zip(RATES, site.client.trials("train"), strict=True):
            assert trial.state == "completed"
            assert restored(site.client, trial) >= 50
            assert last_loss(site.client, trial) == undisturbed(rate, trial.step)


def test_a_requeued_job_joins_anew_and_a_cancelled_one_leaves(site: Site) -> None:
    job = site.launch("--cpus-per-node", "1", "--own")
    site.until(lambda: site.nodes() == named(job))
    site.slurm.ask("scontrol", "requeue", job)
    site.slurm.until(job, "PENDING")
    site.slurm.ask("scontrol", "update", f"JobId={job}", "StartTime=now")
    site.until(lambda: site.nodes() == named(job, "-r1"))
    site.slurm.ask("scancel", job)
    site.slurm.until(job, "CANCELLED")
    site.until(lambda: not site.nodes())
    assert list(site.tmp.glob("hermes-*")) == []


def test_gpus_are_those_of_the_allocation_and_nobody_sees_the_token(site: Site) -> None:
    job = site.launch("--gpus-per-node", "1", "--cpus-per-node", "2", "--own")
    site.until(lambda: site.nodes() == named(job))
    for name in named(job):
        assert site.environment_of(name)["HERMES_NODE_VISIBLE_GPUS"] == "0"
        assert site.environment_of(name)["SLURM_CPUS_PER_TASK"] == "2"
    [folder] = site.share.iterdir()
    secret = (folder / "token").read_text()
    shown = site.slurm.ask("scontrol", "show", "job", job)
    shown += site.slurm.ask("scontrol", "write", "batch_script", job, "-")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            shown += text(entry / "cmdline") + text(entry / "environ")
    assert f"n1-{job}" in shown
    assert secret not in shown
    site.slurm.ask("scancel", job)
    site.slurm.until(job, "CANCELLED")


def test_slurm_says_why_it_takes_no_job(site: Site) -> None:
    with pytest.raises(AssertionError, match=r"Slurm took no job: .*[Ii]nvalid partition"):
        site.launch("--cpus-per-node", "1", "--partition", "none")
    assert list(site.share.iterdir()) == []
