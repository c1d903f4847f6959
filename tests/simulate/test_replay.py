"""A study's past under other policies: small enough to compute every figure by hand.

Four trials of eight iterations of 1 s ran one after the other on one device; starting took 1 s.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hermesd.cli import app
from hermesd.core.commands import Launch
from hermesd.core.events import PolicyFailed, Reported, RunCompleted, RunSuspended
from hermesd.core.model import Checkpoint, Goal, Phase, Plugin, Quantum, RunId, Tier
from hermesd.sim.contenders import contenders
from hermesd.sim.exports import open_export
from hermesd.sim.replay import devices_of, happened, replay
from tests.core.playbook import study
from tests.installed_policies import lucky_policies
from tests.simulate.study_exports import (
    TRIAL,
    entry,
    exported,
    points,
    started,
    trial,
    with_stages,
)

# The first is the worst for long and the best in the end.
LATE = [10.0, 9.5, 9.4, 9.3, 9.2, 6.0, 3.0, 1.0]
CURVES = (
    LATE,
    [8, 5, 4.5, 4, 3.8, 3.6, 3.4, 3],
    [8, 6, 5.5, 5, 5, 5, 5, 5],
    [8, 7, 7, 7, 7, 7, 7, 6],
)
RUNGS = "eta=2,min_rung=2"


def ran(path: Path, curves: Any = CURVES, sign: float = 1.0, **changes: Any) -> Path:
    """An export of these trials, each on the device for ten seconds."""
    trials, lines = [], []
    for number, losses in enumerate(curves):
        steps, at, run = len(losses), 10.0 * number, RunId(f"s/{number}", 1)
        done = {"phase": Phase.COMPLETED, "finished": at + 1 + steps}
        trials.append(with_stages(trial(number, steps, busy=float(steps), **done)))
        values = [sign * loss for loss in losses]
        lines += [
            entry(at, Launch(run, ("n/0",), Quantum(10.0), "first")),
            started(number, 1, 1.0, at=at + 1),
            entry(at + 5, Reported(run, 4, ())),
            entry(at + 1 + steps, Reported(run, steps, ())),
            entry(at + 1 + steps, RunCompleted(run, steps)),
            points(number, 1, list(range(1, steps + 1)), values),
        ]
    return exported(path, study(**changes), trials, *lines)


def test_what_happened_has_the_journals_times(tmp_path: Path) -> None:
    told = replay(ran(tmp_path / "s.jsonl"), contenders("fifo"), None)
    assert (told.study, told.devices, told.trials, told.partly) == ("s", 1, 4, 0)
    assert (told.best, told.best_loss, told.iterations) == ("s/0", 1.0, 32)
    real = told.happened
    assert real.policy == "fifo"
    assert (real.figures.time_to_best, real.figures.makespan) == (9.0, 39.0)
    # Only the first of four is good: it gets there with its last iteration.
    assert real.figures.time_to_good == 9.0
    assert (told.good, told.good_loss) == (1, 2.5)
    assert real.simulated is not None
    # In virtual time nobody idles from the ninth second of ten: 9, 18, 27, 36 for 9, 19, 29, 39.
    assert real.simulated.makespan == 36.0
    assert real.error == pytest.approx((1 / 19 + 2 / 29) / 2)


def test_between_reports_iterations_are_evenly_spread(tmp_path: Path) -> None:
    outcome = happened(open_export(ran(tmp_path / "s.jsonl")))
    mine = [stay for stay in outcome.stays if stay.trial == 1]
    assert [(stay.first, stay.last, stay.begun, stay.ended) for stay in mine] == [
        (0, 4, 11.0, 15.0),
        (4, 8, 15.0, 19.0),
    ]


def test_of_iterations_that_were_trained_twice_the_first_time_counts(tmp_path: Path) -> None:
    one, other = RunId("s/0", 1), RunId("s/0", 2)
    lines = [
        started(0, 1, 1.0, at=1.0),
        entry(5.0, Reported(one, 4, ())),
        started(0, 2, 1.0, at=10.0),
        entry(18.0, Reported(other, 8, ())),
        points(0, 2, list(range(1, 9)), LATE),
    ]
    path = exported(tmp_path / "s.jsonl", study(), [with_stages(trial(0, 8, busy=8.0))], *lines)
    outcome = happened(open_export(path))
    assert [(s.first, s.last, s.begun, s.ended) for s in outcome.stays] == [
        (0, 4, 1.0, 5.0),
        (4, 8, 14.0, 18.0),
    ]
    assert outcome.finished == (18.0,)


def test_asha_would_have_ended_the_best_and_regretted_it(tmp_path: Path) -> None:
    (asha,) = replay(ran(tmp_path / "s.jsonl"), contenders(f"asha:{RUNGS}"), None).policies
    given_up = asha.given_up
    steps = {each.trial: (each.step, each.held_back) for each in given_up.trials}
    # Two of four pass the rung at 2, one of these two the rung at 4.
    assert steps == {"s/0": (2, True), "s/1": (8, False), "s/2": (4, True), "s/3": (2, True)}
    assert (given_up.held_back, given_up.best_held_back, given_up.iterations) == (3, True, 16)
    first = given_up.trials[0]
    assert (first.loss, first.final_loss, first.rank) == (9.5, 1.0, 1)
    assert first.words.startswith("rung 0 (step 2)")
    # The pick ends at 3.0 where the best ends at 1.0; trials start at 8.
    assert (given_up.pick, given_up.regret) == ("s/1", 2.0)
    assert given_up.regret_share == pytest.approx(2 / 7)
    # With nobody ended all is trained: four starts, 32 iterations, switches.
    assert asha.figures.makespan > 36
    assert given_up.seconds < asha.figures.makespan


def test_the_last_one_goes_on_though_its_rung_lets_nobody_pass(tmp_path: Path) -> None:
    words = contenders("asha:eta=3,min_rung=2,max_rung=8")
    (asha,) = replay(ran(tmp_path / "s.jsonl"), words, None).policies
    steps = {each.trial: (each.step, each.held_back) for each in asha.given_up.trials}
    # One of four passes the rung at 2; of one, a third is none.
    assert steps == {"s/0": (2, True), "s/1": (8, False), "s/2": (2, True), "s/3": (2, True)}


def test_one_that_diverged_is_not_the_last_one(tmp_path: Path) -> None:
    """It is over at once; of the others one passes the rung at 2, and none the next."""
    path = ran(tmp_path / "s.jsonl", curves=(*CURVES[:3], [9.0, math.nan]))
    words = contenders("asha:eta=3,min_rung=2,max_rung=8")
    (asha,) = replay(path, words, None).policies
    steps = {each.trial: (each.step, each.held_back) for each in asha.given_up.trials}
    assert steps == {"s/0": (2, True), "s/1": (8, False), "s/2": (2, True), "s/3": (1, False)}


def test_a_fork_has_the_past_of_its_parent_and_the_pace_of_its_own_steps(tmp_path: Path) -> None:
    """s/4 went on where s/1 was after four iterations, in 4 s; s/5 where s/4 was after six."""
    path = ran(tmp_path / "s.jsonl")
    past, own = CURVES[1][:4], [3.0, 2.0, 1.5, 0.5]
    begun = Checkpoint("c", "s/1", 1, 4, "", 1, ("n",))
    forks = [
        trial(4, 8, busy=4.0, forked=begun, finished=50.0, phase=Phase.COMPLETED),
        trial(5, 7, busy=1.0, forked=replace(begun, trial="s/4", attempt=2, step=6),
              finished=60.0, phase=Phase.COMPLETED),
    ]  # fmt: skip
    with path.open("a") as file:
        for fork in forks:
            line = {"type": "trial", "trial": json.loads(TRIAL.write(with_stages(fork)))}
            file.write(json.dumps(line) + "\n")
        file.write(json.dumps(points(4, 2, [5, 6, 7, 8], own)) + "\n")
        file.write(json.dumps(points(5, 3, [7], [0.75])) + "\n")
        file.write(json.dumps(points(1, 2, [3], [99.0])) + "\n")  # s/1 began anew later
    jobs = open_export(path).curves.jobs
    assert jobs[4].losses == (*past, *own)
    assert jobs[5].losses == (*past, 3.0, 2.0, 0.75)
    assert (jobs[4].step_seconds, jobs[5].step_seconds) == (1.0, 1.0)
    told = replay(path, contenders(f"asha:{RUNGS}"), None)
    assert (told.forks, told.trials, told.best) == (2, 6, "s/4")
    assert all("inf" not in each.words for each in told.policies[0].given_up.trials)


@pytest.mark.parametrize("policy", ["successive_halving", "hyperband"])
def test_rounds_of_halving_end_trials_as_well(policy: str, tmp_path: Path) -> None:
    words = f"{policy}:eta=2,min_rung=2,max_rung=8"
    (told,) = replay(ran(tmp_path / "s.jsonl"), contenders(words), None).policies
    assert told.given_up.held_back > 0
    assert told.given_up.iterations == sum(each.step for each in told.given_up.trials) < 32


def test_the_median_rule_ends_whom_it_finds_behind(tmp_path: Path) -> None:
    words = "median:grace=2,every=2,min_trials=1"
    (told,) = replay(ran(tmp_path / "s.jsonl"), contenders(words), None).policies
    ended = [each for each in told.given_up.trials if each.held_back]
    assert ended
    assert all(each.step in (2, 4, 6) for each in ended)


@pytest.mark.parametrize("policy", ["fifo", "best_first", "round_robin", "hermes"])
def test_a_policy_that_holds_nobody_back_ends_nobody(policy: str, tmp_path: Path) -> None:
    (told,) = replay(ran(tmp_path / "s.jsonl"), contenders(policy), None).policies
    given_up = told.given_up
    assert (given_up.held_back, given_up.best_held_back) == (0, False)
    assert (given_up.pick, given_up.regret, given_up.iterations) == ("s/0", 0.0, 32)


def test_a_maximized_signal_is_told_as_it_was(tmp_path: Path) -> None:
    path = ran(tmp_path / "s.jsonl", sign=-1.0, signal_goal=Goal.MAXIMIZE)
    told = replay(path, contenders(f"asha:{RUNGS}"), None)
    assert (told.best, told.best_loss) == ("s/0", -1.0)
    given_up = told.policies[0].given_up
    assert (given_up.trials[0].loss, given_up.pick, given_up.regret) == (-9.5, "s/1", 2.0)
    assert given_up.trials[0].words == "rung 0 (step 2), signal -9.75"
    assert (told.good, told.good_loss) == (1, -2.5)


def test_devices_are_those_it_ran_on_or_those_asked_for(tmp_path: Path) -> None:
    path = ran(tmp_path / "s.jsonl")
    assert devices_of(open_export(path)) == 1
    told = replay(path, contenders("fifo"), 4)
    assert told.devices == 4
    assert told.policies[0].figures.makespan == 9.0
    assert told.happened.simulated is not None
    assert told.happened.simulated.makespan == 36.0
    many = replay(path, contenders("fifo"), 10**9)
    assert (many.devices, many.policies) == (10**9, told.policies)


def test_an_unfinished_study_is_replayed_as_far_as_it_is_known(tmp_path: Path) -> None:
    path = ran(tmp_path / "s.jsonl")
    lines = path.read_text().splitlines()
    waiting = json.loads(lines[4])
    waiting["trial"]["phase"] = "waiting"
    waiting["trial"]["finished"] = None
    lines[4] = json.dumps(waiting)
    never = {"type": "trial", "trial": waiting["trial"] | {"step": 0}}
    never["trial"]["spec"]["id"] = "s/4"
    path.write_text("\n".join([*lines, json.dumps(never)]))
    told = replay(path, contenders("asha"), None)
    assert (told.trials, told.partly, told.untrained) == (4, 1, 1)
    assert told.happened.figures.makespan == 39.0


def test_the_time_without_its_devices_is_told_and_counts_only_while_a_trial_waits(
    tmp_path: Path,
) -> None:
    """Two devices: the second is with others until 10, its trial gives it back from 14 to 20."""
    over = {"phase": Phase.COMPLETED}
    trials = [
        with_stages(trial(0, 4, busy=4.0, finished=8.0, **over)),
        with_stages(trial(1, 4, busy=4.0, finished=26.0, **over)),
    ]
    one, two, again = RunId("s/0", 1), RunId("s/1", 1), RunId("s/1", 2)
    path = exported(
        tmp_path / "s.jsonl",
        study(),
        trials,
        entry(2.0, Launch(one, ("n/0",), Quantum(10.0), "first")),
        entry(8.0, RunCompleted(one, 4)),
        entry(10.0, Launch(two, ("n/1",), Quantum(10.0), "next")),
        started(1, 1, 1.0, at=11.0),
        entry(14.0, RunSuspended(two, Tier.PARK, 2, None, 0.1)),
        entry(20.0, Launch(again, ("n/1",), Quantum(10.0), "next")),
        entry(26.0, RunCompleted(again, 4)),
        *(points(number, 1, [1, 2, 3, 4], [4.0, 3.0, 2.0, 1.0]) for number in (0, 1)),
    )
    told = replay(path, contenders("fifo"), 1)
    # Twice 2 until the first launch, 8 of the other trial, 6 of the one that was suspended.
    assert told.happened.away_seconds == 18.0
    assert (told.devices, told.devices_had) == (1, 2)
    assert told.happened.simulated_switches == 0


def test_a_policy_that_is_not_installed_is_not_simulated_again(tmp_path: Path) -> None:
    told = replay(ran(tmp_path / "s.jsonl", policy=Plugin("my_own")), contenders("fifo"), None)
    real = told.happened
    assert (real.policy, real.simulated, real.error) == ("my_own", None, None)
    assert real.unsimulated == "policy my_own is not installed here"


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ("unlucky", "policy unlucky raised ZeroDivisionError: division by zero"),
        ("idle", "policy idle claims none of the trials that are left (4 of 4), though no device"),
    ],
)
def test_a_policy_that_failed_is_not_simulated_again_and_the_others_are(
    tmp_path: Path, own: str, why: str
) -> None:
    failed = entry(0.0, PolicyFailed("s", "it raised"))
    path = ran(tmp_path / "s.jsonl", policy=Plugin(own))
    with path.open("a") as file:
        file.write(json.dumps(failed))
    with lucky_policies(tmp_path):
        told = replay(path, contenders("asha,fifo"), None)
        refused = hermesd("replay", path, "--policy", own)
    assert [each.policy for each in told.policies] == ["asha", "fifo"]
    real = told.happened
    assert (real.own, real.policy) == (own, f"{own}, then fifo")
    assert (real.simulated, real.error) == (None, None)
    assert real.unsimulated.startswith(why)
    # Asked for, it is the answer that is missing.
    assert (refused.exit_code, refused.stderr) == (2, f"hermesd: {real.unsimulated}\n")


def test_the_own_policy_is_told_with_its_settings(tmp_path: Path) -> None:
    own = Plugin("best_first", (("target", -0.8), ("good", 0.0)))
    path = ran(tmp_path / "s.jsonl", policy=own, placement=Plugin("homes", (("G_thres", 2),)))
    told = replay(path, contenders("best_first"), None)
    label = "best_first:target=-0.8,good=0.0,G_thres=2,placement=homes"
    assert told.happened.own == told.happened.policy == label
    (again,) = contenders(label)
    assert (again.policy, again.placement.name) == (own, "homes")


def hermesd(*words: str | Path) -> Any:
    return CliRunner().invoke(app, [*map(str, words)])


def test_the_command_prints_what_was_found_as_json(tmp_path: Path) -> None:
    path = ran(tmp_path / "s.jsonl")
    done = hermesd("replay", path, "--policy", f"asha:{RUNGS},fifo")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["version"], told["study"], told["best"]) == (1, "s", "s/0")
    assert [each["policy"] for each in told["policies"]] == [f"asha:{RUNGS}", "fifo"]
    assert told["policies"][0]["given_up"]["best_held_back"] is True


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["replay", "{}", "--policy", "ashaa"], "hermesd: --policy = ashaa: expected one of"),
        (["replay", "{}.no"], "expected a file that can be read"),
        (
            ["forecast", "{}", "--trials", "4", "--policy", "x"],
            "hermesd: --policy = x: expected one of",
        ),
        (
            ["forecast", "{}", "--trials", "1000000000"],
            "hermesd: --draws = 10: expected at most 1,000,000 trials in all draws together",
        ),
    ],
)
def test_words_that_will_not_do_are_refused(words: list[str], why: str, tmp_path: Path) -> None:
    path = str(ran(tmp_path / "s.jsonl"))
    refused = hermesd(*(word.replace("{}", path) for word in words))
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert why in refused.stderr
