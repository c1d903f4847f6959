"""Nodes that a real Slurm lends: launched, trained on, and left without a loss.

The controller, its nodes and the tasks are real processes on this machine (`virtual`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.test_joining import Place
from tests.e2e.test_lost_node import SCRIPT, STEPS
from tests.slurm.virtual import Slurm, missing, virtual

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.timeout(300),
]
RATES = (0.001, 0.002, 0.003)


class Site:
    """A head, and a Slurm of three nodes."""

    def __init__(self, place: Place, slurm: Slurm) -> None:
        self.place = place
        self.slurm = slurm
        self.share = place.folder / "share"
        self.tmp = place.folder / "tmp"
        self.tmp.mkdir()
        place.environment.update({**slurm.environment, "TMPDIR": str(self.tmp)})

    def launch(self, *words: str) -> str:
        """The job of three nodes of one slot."""
        asked = ("--nodes", "3", "--cpus-per-node", "1", "--time", "1h", *words)
        told = self.place.ctl(
            "cluster", "launch", "--slurm", *asked, "--share", str(self.share), "-o", "json",
            admin=True,
        )  # fmt: skip
        return str(json.loads(told)["job"])

    def read(self, *words: str) -> list[dict[str, object]]:
        """The rows of a listing."""
        document = json.loads(self.place.ctl(*words, "-o", "json", admin=True))
        rows: list[dict[str, object]] = document[f"{words[0]}s"]
        return rows

    def nodes(self) -> set[str]:
        return {str(one["id"]) for one in self.read("node", "ls") if one["connected"]}

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something, for as long as the test may take."""
        while not holds():
            pass

    def submit(self) -> None:
        (self.place.folder / "train.py").write_text(SCRIPT)
        grid = f"rate={','.join(map(str, RATES))}"
        self.place.ctl("submit", str(self.place.folder / "train.py"), "--grid", grid, admin=True)

    def steps(self) -> list[int]:
        return [int(str(one["step"])) for one in self.read("trial", "ls")]

    def completed(self) -> bool:
        return all(one["state"] == "completed" for one in self.read("trial", "ls"))


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with virtual(tmp_path_factory.mktemp("v"), 3) as running:
        yield running


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory, slurm: Slurm) -> Iterator[Site]:
    place = Place(tmp_path_factory.mktemp("s"))
    with place.daemon("head"):
        yield Site(place, slurm)


def named(job: str) -> set[str]:
    return {f"n{number}-{job}" for number in (1, 2, 3)}


def test_a_study_goes_on_when_the_job_that_it_ran_in_ends(site: Site) -> None:
    job = site.launch()
    site.until(lambda: site.nodes() == named(job))
    site.submit()
    site.until(lambda: min(site.steps()) >= 50)
    local = ("node", "--state", str(site.place.folder / "own"), "--slots", "1")
    with site.place.daemon(*local, "--head", f"unix:{site.place.folder}/head/head.sock"):
        # As Slurm does it so long before the time limit.
        site.slurm.ask("scancel", "--signal=USR1", job)
        site.slurm.until(job, "COMPLETED")
        assert not site.nodes() & named(job)
        assert list(site.tmp.glob("hermes-*")) == [], "they leave nothing behind"
        site.until(site.completed)
        assert site.steps() == [STEPS] * len(RATES)
        trials = [str(one["id"]) for one in site.read("trial", "ls")]
        log = "".join(site.place.ctl("logs", trial, admin=True) for trial in trials)
        restored = [int(line.split()[1]) for line in log.splitlines() if "restored" in line]
        assert sum(step >= 50 for step in restored) >= len(RATES)


def test_a_job_that_is_cancelled_leaves_in_time(site: Site) -> None:
    job = site.launch()
    site.until(lambda: site.nodes() == named(job))
    site.slurm.ask("scancel", job)
    site.slurm.until(job, "CANCELLED")
    site.until(lambda: not site.nodes())
    assert site.read("node", "ls") == [], "they said goodbye for good"
    assert list(site.tmp.glob("hermes-*")) == []


def test_a_job_that_is_requeued_joins_anew_under_other_names(site: Site) -> None:
    job = site.launch()
    site.until(lambda: site.nodes() == named(job))
    site.slurm.ask("scontrol", "requeue", job)
    site.slurm.until(job, "PENDING")
    site.slurm.ask("scontrol", "update", f"JobId={job}", "StartTime=now")
    site.until(lambda: site.nodes() == {f"{name}-r1" for name in named(job)})
    site.slurm.ask("scancel", job)
    site.slurm.until(job, "CANCELLED")


def test_slurm_says_why_it_takes_no_job(site: Site) -> None:
    with pytest.raises(AssertionError, match=r"Slurm took no job: .*[Ii]nvalid partition"):
        site.launch("--partition", "none")
    assert list(site.share.iterdir()) == []


def test_nobody_but_its_owner_can_read_the_token(site: Site) -> None:
    job = site.launch()
    [folder] = site.share.iterdir()
    secret = Path(folder / "token").read_text()
    shown = site.slurm.ask("scontrol", "show", "job", job)
    shown += site.slurm.ask("scontrol", "write", "batch_script", job, "-")
    site.until(lambda: site.nodes() == named(job))
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                shown += (entry / "cmdline").read_text(errors="replace")
                shown += (entry / "environ").read_text(errors="replace")
            except OSError:
                continue
    assert job in shown
    assert secret not in shown
    site.slurm.ask("scancel", job)
    site.slurm.until(job, "CANCELLED")
