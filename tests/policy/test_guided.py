"""Guided: which trial is probed next follows from the paces of those that were."""

from __future__ import annotations

from dataclasses import replace

from hermesd.core.model import Scalar, Stage
from hermesd.core.trial import Trial
from hermesd.policy.guided import Guided
from tests.policy.trials import finished, on_device, trained, trial, view

GRID = [(optimizer, lr) for optimizer in ("sgd", "adam") for lr in (0.1, 0.01, 0.001)]
SLOW, FAST, SLOWER, BETTER = 0.2, 1.0, 0.1, 0.5


def having(each: Trial, **values: Scalar) -> Trial:
    """The trial with these parameters."""
    return replace(each, spec=replace(each.spec, stages=(Stage(None, tuple(values.items())),)))


def falling(pace: float, steps: int) -> list[float]:
    """Losses that halve every 20 / pace steps from 8."""
    return [8 * 0.5 ** (step * pace / 20) for step in range(1, steps + 1)]


def point(number: int, pace: float | None = None, steps: int = 30) -> Trial:
    """A point of the grid, probed if it has a pace."""
    optimizer, lr = GRID[number % len(GRID)]
    known = {"planned_steps": 400, "step_seconds": {"cpu": 0.1}}
    each = trial(number) if pace is None else trained(number, falling(pace, steps), **known)
    return having(each, optimizer=optimizer, lr=lr)


# 0.01 was best with sgd, and adam beat sgd at 0.1.
PROBED = [point(0, SLOW), point(1, FAST), point(2, SLOWER), point(3, BETTER)]


def claimed(policy: Guided, *trials: Trial) -> list[str]:
    return [claim.trial for claim in policy.plan(view(*trials))]


def test_the_first_probes_go_in_order_of_submission() -> None:
    trials = [point(0, BETTER), point(1, FAST), point(2), point(3), point(4)]
    assert claimed(Guided(), *trials) == ["s/2", "s/3", "s/4", "s/1", "s/0"]


def test_the_next_probe_is_where_the_parameters_promise_most() -> None:
    order = claimed(Guided(caution=5.0), *PROBED, point(5), point(4))
    assert order[:2] == ["s/4", "s/5"]


def test_the_leader_does_not_wait_for_those_who_are_where_it_never_was() -> None:
    """Each falls by as little, from a level of its own: the second is the lowest from the start."""
    levels = [(0, 9.0), (1, 1.0), (2, 13.0), (3, 5.0)]
    apart = [
        trained(
            n,
            [level + loss / 80 for loss in falling(1.0, 30)],
            planned_steps=400,
            step_seconds={"cpu": 0.1},
        )
        for n, level in levels
    ]
    assert claimed(Guided(), *apart)[0] == "s/1"


def test_probes_that_promise_too_little_come_after_the_best_that_waits() -> None:
    plain = Guided(caution=0.0)
    assert claimed(plain, *PROBED, point(5))[:1] == ["s/1"]
    assert claimed(plain, *PROBED, point(5))[-1] == "s/5"
    # Once that one is done, those that wait are worse than what a cautious look promises.
    done = finished(point(1, FAST, 400))
    after = claimed(Guided(), PROBED[0], done, *PROBED[2:], point(4), point(5))
    assert after[0] == "s/4"


def test_a_good_leader_waits_for_those_that_will_be_good() -> None:
    leader = point(1, FAST, 300)
    order = claimed(Guided(caution=0.0), PROBED[0], leader, *PROBED[2:])
    assert order[0] == "s/3"
    assert order.index("s/1") > 0


def test_who_just_ran_competes_and_who_runs_informs_only() -> None:
    trials = [PROBED[0], on_device(PROBED[1]), on_device(PROBED[2], expired=False), PROBED[3]]
    order = claimed(Guided(caution=0.0), *trials, point(5))
    assert order[0] == "s/1"
    assert "s/2" not in order


def test_a_trial_whose_losses_are_no_numbers_is_the_slowest() -> None:
    broken = having(trained(7, [float("nan")] * 30), optimizer="sgd", lr=0.1)
    assert claimed(Guided(), *PROBED, broken)[-1] == "s/7"
    lost = [having(trained(n, [float("nan")] * 30), lr=0.1 * n) for n in range(5)]
    assert len(claimed(Guided(), *lost, point(9))) == 6


def test_of_very_many_probes_evenly_many_are_learned_from() -> None:
    paces = [0.2 + 0.1 * (n % 7) for n in range(900)]
    trials = [having(trained(n, falling(p, 30)), x=n % 7) for n, p in enumerate(paces)]
    unknown = [having(trial(1000 + v), x=v) for v in range(7)]
    plan = claimed(Guided(caution=9.0), *trials, *unknown)
    assert plan[0] == "s/1006"


def test_without_parameters_no_probe_is_better_than_another() -> None:
    probed = [trained(n, falling(0.2 + 0.1 * n, 30)) for n in range(5)]
    bare = [
        replace(each, spec=replace(each.spec, stages=(Stage(None, ()),)))
        for each in (*probed, trial(6), trial(7))
    ]
    order = claimed(Guided(caution=9.0), *bare)
    assert [name for name in order if name in ("s/6", "s/7")] == ["s/6", "s/7"]
    assert [name for name in order if name not in ("s/6", "s/7")] == [
        f"s/{n}" for n in (4, 3, 2, 1, 0)
    ]


def test_on_scales_of_their_own_paces_are_what_counts() -> None:
    scales = (1.0, 30.0, 0.01, 900.0)
    trials = []
    for each, scale in zip(PROBED, scales, strict=True):
        pace = (SLOW, FAST, SLOWER, BETTER)[each.spec.number]
        values = [8.0 * scale, *(value * scale for value in falling(pace, 29))]
        trials.append(having(trained(each.spec.number, values), **dict(each.spec.parameters)))
    assert claimed(Guided(), *trials) == ["s/1", "s/3", "s/0", "s/2"]


def test_the_reason_names_the_pace() -> None:
    reasons = [claim.reason for claim in Guided().plan(view(*PROBED, point(4)))]
    assert all("of the leader's pace" in reason for reason in reasons)
    assert Guided().words(point(0, SLOW)).startswith("loss ")
