"""How several processes of one trial end: what their last checkpoint has, and who still waits."""

from __future__ import annotations

import json
import os
import signal
import textwrap
from pathlib import Path

import pytest

from tests.trainer_shim.driving import Event, Trial, Zygote, ending
from tests.trainer_shim.rank_programs import ALL_REDUCE, DDP
from tests.trainer_shim.test_own_end import has_heard
from tests.trainer_shim.test_rank_forks import forked
from tests.trainer_shim.test_ranks import last_words, of_torch, steps_begin, trial_of, undisturbed
from tests.waiting import until

assert of_torch  # a fixture

# Each trains by itself for so many steps as its place among the arguments says, and waits before
# the last of them, or its end, until a file is there that has its name.
APART = textwrap.dedent("""
    import os, sys, time
    import trainer_shim

    def waits():
        open(f"at-{rank}", "w").close()
        while not os.path.exists(f"go-{rank}"):
            time.sleep(0.005)

    trial = trainer_shim.attach()
    rank = int(os.environ["RANK"])
    steps, at = sys.argv[1 + rank].split("@")
    for step in range(1, int(steps) + 1):
        if str(step) == at:
            waits()
        trial.report(step, loss=1.0 / step, save=lambda folder: None)
    if at == "end":
        waits()
    print(rank, step, flush=True)
""")


def go(trial: Trial, rank: int) -> None:
    """Let a process go on that waits for it."""
    (trial.directory / "work" / f"go-{rank}").touch()


def fidelity(trial: Trial) -> Event:
    """What was said last of it."""
    return [each for each in trial.events if each["kind"] == "fidelity"][-1]


def extended(
    folder: Path, width: int, program: str, lengths: tuple[int, int], zygote: Zygote | None = None
) -> list[str]:
    """What each process says last if they train so long, and on from there so long in all."""
    short, longer = map(str, lengths)
    with ending(trial_of(folder / "short", width, program, short, seed=1).launch(zygote)) as trial:
        trial.start()
        kept = trial.until("completed")["checkpoint"]
    manifests = [Path(kept["path"]), *(Path(kept["path"]) / f"rank-{n}" for n in range(1, width))]
    steps = {json.loads((each / "manifest.json").read_text())["step"] for each in manifests}
    assert steps == {kept["step"]}
    with ending(trial_of(folder / "on", width, program, longer, seed=1).launch(zygote)) as trial:
        trial.start(kept["path"])
        trial.until("completed")
        assert min(trial.losses()) == kept["step"] + 1
        return last_words(trial, width)


@pytest.mark.parametrize("width", [1, 2, 3])
def test_those_that_have_ended_train_further_as_if_they_had_never_stopped(
    tmp_path: Path, width: int
) -> None:
    """Each with its own random numbers, which all others take part in."""
    expected = undisturbed(tmp_path / "plain", width, 900)
    assert extended(tmp_path, width, ALL_REDUCE, (400, 900)) == expected


@pytest.mark.torch
@pytest.mark.timeout(300)
@pytest.mark.parametrize("width", [2, 3])
def test_torchs_distributed_data_parallel_trains_further_as_if_it_had_never_stopped(
    tmp_path: Path, of_torch: Zygote, width: int
) -> None:
    """Each has its own random numbers, for dropout, and its own part of the data."""
    expected = undisturbed(tmp_path / "plain", width, 20, DDP, of_torch)
    assert extended(tmp_path, width, DDP, (12, 20), of_torch) == expected


def test_a_process_that_leaves_nothing_is_named_where_it_matters(tmp_path: Path) -> None:
    leaves = APART + "if rank == 1:\n    os._exit(0)\n"
    with ending(trial_of(tmp_path / "t", 3, leaves, "5@", "5@", "5@").launch()) as trial:
        trial.start()
        kept = Path(trial.until("completed")["checkpoint"]["path"])
        assert {each.name for each in kept.glob("rank-*")} == {"rank-2"}
        assert fidelity(trial)["reason"].endswith(
            "trained further, these of its processes begin with the state of rank 0, since they"
            " saved none of their own at its last step: 1"
        )


def test_what_the_first_has_finished_is_kept_where_another_fails_as_it_ends(tmp_path: Path) -> None:
    """So that the trial, tried again, need not train it again."""
    fails = APART + "if rank == 1:\n    sys.exit(3)\n"
    with ending(trial_of(tmp_path / "t", 2, fails, "5@", "5@end").launch()) as trial:
        trial.start()
        first = Path(f"/proc/{trial.until('started')['worker_pid']}")
        until(lambda: not first.exists())
        go(trial, 1)
        with pytest.raises(AssertionError, match="rank 1"):
            trial.until("completed")
        assert [each.name for each in trial.checkpoints.iterdir()] == ["end-s5"]
        (kept,) = [each for each in trial.events if each["kind"] == "checkpointed"]
        assert kept["step"] == 5


def test_a_host_that_is_killed_before_all_have_ended_leaves_no_checkpoint_of_some(
    tmp_path: Path,
) -> None:
    trial = trial_of(tmp_path / "t", 2, APART, "5@", "5@end")
    with ending(trial.launch()) as trial:
        trial.start()
        until(lambda: list(trial.checkpoints.glob("end-s5.part.partial/manifest.json")))
        os.kill(trial.host_pid, signal.SIGKILL)
        assert trial.process is not None
        trial.process.wait()
        go(trial, 1)
        trial.launch()
        assert not list(trial.checkpoints.iterdir())
        trial.start()
        kept = Path(trial.until("completed")["checkpoint"]["path"])
        assert [each.name for each in trial.checkpoints.iterdir()] == [kept.name] == ["end-s5"]
        assert (kept / "rank-1" / "manifest.json").exists()


@pytest.mark.parametrize("forks", [False, True])
def test_those_that_are_left_need_not_wait_for_one_that_ends(tmp_path: Path, forks: bool) -> None:
    """It ends when the other waits already."""
    stages = [[40, {"rate": 1.0}, True], [None, {"rate": 1.0}, False]]
    given = {"parameters": {"rate": 1.0}, "stages": stages} if forks else {}
    trial = trial_of(tmp_path / "t", 2, APART, "80@", "30@end", **given)
    with ending(trial.launch()) as trial:
        trial.start(limit=60 if forks else 40)
        steps_begin(trial, 40)
        go(trial, 1)
        if forks:
            assert trial.until("checkpointed")["is_fork"]
        parked = trial.until("parked")
        assert (parked["step"], parked["at_boundary"]) == (60 if forks else 40, True)
        trial.resume()
        trial.until("completed")
        assert last_words(trial, 2) == ["0 80", "1 30"]


def test_those_that_are_left_go_on_to_their_end_once_the_first_has_come_to_its_own(
    tmp_path: Path,
) -> None:
    """Though all had the same limit, where one of them waits before that, and one after it."""
    trial = trial_of(tmp_path / "t", 3, APART, "20@20", "60@", "60@30")
    with ending(trial.launch()) as trial:
        trial.start(limit=40)
        steps_begin(trial)
        go(trial, 0)
        until(lambda: "0 20" in trial.output)
        go(trial, 2)
        completed = trial.until("completed")
        assert last_words(trial, 3) == ["0 20", "1 60", "2 60"]
        assert completed["checkpoint"]["step"] == 20


@pytest.mark.parametrize("is_first", [False, True])
def test_a_suspend_waits_no_longer_for_those_that_gather_than_it_may(
    tmp_path: Path, is_first: bool
) -> None:
    """Whether it is asked for before one of them waits where others are to go on from, or after:
    the other comes there only once all this is over."""
    waits = """
        if step == 49:
            open(f"at-{rank}", "w").close()
        while step == 49 and not os.path.exists(f"go-{rank}"):
            time.sleep(0.005)
    """
    at = "    trial.report(step"
    program = ALL_REDUCE.replace(at, textwrap.indent(textwrap.dedent(waits), "    ") + at)
    expected = undisturbed(tmp_path / "plain", 2, 100)
    stages = [[49, {"rate": 1.0}, True], [None, {"rate": 1.0}, False]]
    given = {"parameters": {"rate": 1.0}, "stages": stages}
    with ending(trial_of(tmp_path / "t", 2, program, "100", **given).launch()) as trial:
        trial.start()
        work = trial.directory / "work"
        until(lambda: all((work / f"at-{rank}").exists() for rank in range(2)))
        if is_first:
            trial.suspend("park", deadline=2.0)
            go(trial, 0)
        else:
            go(trial, 0)
            steps_begin(trial, 49)  # it says so where it waits
            trial.suspend("park", deadline=1.0)
        trial.until("parked")
        # Else it was too slow to wait there before all this was over, and they do so together.
        waited = 49 in trial.losses()
        trial.resume()
        go(trial, 1)
        trial.until("completed")
        assert last_words(trial, 2) == expected
        assert not (waited and forked(trial))


def left_to_the_other(folder: Path, program: str = APART) -> Trial:
    """One whose first process has ended, and whose other does not yet."""
    trial = trial_of(folder, 2, program, "5@", "5@end").launch()
    trial.start()
    first = Path(f"/proc/{trial.until('started')['worker_pid']}")
    until(lambda: not first.exists())
    return trial


@pytest.mark.parametrize("tier", ["park", "checkpoint"])
@pytest.mark.parametrize("is_first", [False, True])
def test_a_suspend_lets_those_that_are_left_come_to_their_end(
    tmp_path: Path, tier: str, is_first: bool
) -> None:
    """Whether it is asked for before the first of them has ended, or after."""
    trial = trial_of(tmp_path / "t", 2, APART, "5@end", "5@end")
    with ending(trial.launch()) as trial:
        trial.start()
        first = Path(f"/proc/{trial.until('started')['worker_pid']}")
        work = trial.directory / "work"
        until(lambda: all((work / f"at-{rank}").exists() for rank in range(2)))
        if not is_first:
            go(trial, 0)
            until(lambda: not first.exists())
        trial.suspend(tier, deadline=600.0)
        has_heard(trial)
        go(trial, 0)
        until(lambda: not first.exists())
        go(trial, 1)
        completed = trial.until("completed")
        assert last_words(trial, 2) == ["0 5", "1 5"]
        assert (Path(completed["checkpoint"]["path"]) / "rank-1" / "manifest.json").exists()
    assert {"parked", "suspended"}.isdisjoint(event["kind"] for event in trial.events)


@pytest.mark.parametrize("tier", ["park", "checkpoint"])
def test_a_suspend_freezes_nobody_though_the_first_has_ended_without_a_word(
    tmp_path: Path, tier: str
) -> None:
    """Of a program that shows no boundaries, which would be frozen at once."""
    wordless = """
        import ctypes, os, time
        if os.environ["RANK"] == "0":
            ctypes.CDLL(None)._exit(0)
        while not os.path.exists("go-1"):
            time.sleep(0.005)
        print("over", flush=True)
    """
    with ending(trial_of(tmp_path / "t", 2, textwrap.dedent(wordless)).launch()) as trial:
        trial.start()
        trial.send("attach", after=0)
        first = Path(f"/proc/{trial.until('attached')['worker_pid']}")
        until(lambda: not first.exists())
        trial.suspend(tier, deadline=600.0)
        has_heard(trial)
        go(trial, 1)
        trial.until("completed")
        (said,) = (trial.directory / "output.log.rank1").read_text().splitlines()
        assert said == "over"


@pytest.mark.parametrize("asked", ["park", "checkpoint", "kill", "stop"])
def test_those_that_are_ended_before_their_end_have_neither_completed_nor_failed(
    tmp_path: Path, asked: str
) -> None:
    """The trial goes on from its last checkpoint, as one of a single process does."""
    with ending(left_to_the_other(tmp_path / "t")) as trial:
        if asked == "stop":
            trial.send("stop", deadline_seconds=0.1)
        else:
            trial.suspend(asked, deadline=0.1)
        suspended = trial.until("parked", "suspended", "completed")
        assert (suspended["kind"], suspended["tier"]) == ("suspended", "kill")
        trial.start()
        go(trial, 1)
        trial.until("completed")
        assert last_words(trial, 2) == ["0 5", "1 5"]
