"""FlowCon: growth efficiency and the turns it earns, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from hermesd.core.trial import Trial, Use
from hermesd.policy.published.flowcon import FlowCon, efficiency
from tests.policy.trials import losses, on_device, trained, trial, view


def growing(number: int, fall: float, **known: object) -> Trial:
    """A trial whose loss fell by `fall` in a second: over 10 iterations of a tenth of one."""
    seen = {"first": losses(9.0), "before": losses(9.0), "latest": losses(*[9.0 - fall] * 10)}
    return trained(number, [9.0] * 10, **{**seen, "step_seconds": {"cpu": 0.1}, **known})


def seconds(policy: FlowCon, *trials: Trial) -> dict[str, float | None]:
    return {claim.trial: claim.quantum.seconds for claim in policy.plan(view(*trials))}


def test_growth_is_the_change_of_the_loss_per_second_and_resource() -> None:
    assert efficiency(growing(0, 2.0)) == pytest.approx(2.0)
    # Four core-seconds within two seconds are two cores.
    busy = growing(0, 2.0, use=Use(busy_seconds=2.0, cpu_seconds=4.0))
    assert efficiency(busy) == pytest.approx(1.0)


def test_a_rising_loss_is_a_change_too() -> None:
    assert efficiency(growing(0, -2.0)) == pytest.approx(2.0)


def test_nothing_is_known_before_a_quantum_and_nan_grows_nowhere() -> None:
    assert efficiency(trial()) is None
    broken = trained(0, [float("nan")] * 3, step_seconds={"cpu": 0.1})
    assert efficiency(broken) == 0.0


def test_turns_are_in_proportion_to_growth() -> None:
    # The average of 3, 2 and 1 is 2.
    trials = [growing(n, fall) for n, fall in enumerate((3.0, 2.0, 1.0))]
    assert seconds(FlowCon(30.0, floor=0.1), *trials) == pytest.approx(
        {"s/0": 45.0, "s/1": 30.0, "s/2": 15.0}
    )


def test_the_converged_shrink_to_the_floor_and_the_new_get_an_average_turn() -> None:
    trials = [growing(0, 4.0), growing(1, 0.0), trial(2)]
    assert seconds(FlowCon(30.0, floor=0.5), *trials) == pytest.approx(
        {"s/0": 60.0, "s/1": 15.0, "s/2": 30.0}
    )


def test_when_all_have_converged_turns_are_equal() -> None:
    turns = seconds(FlowCon(30.0), growing(0, 0.0), growing(1, 0.0))
    assert set(turns.values()) == {30.0}


def test_turns_rotate() -> None:
    trials = [growing(0, 1.0, rested=5.0), growing(1, 1.0, rested=3.0), on_device(growing(2, 9.0))]
    assert list(seconds(FlowCon(), *trials)) == ["s/1", "s/0", "s/2"]
