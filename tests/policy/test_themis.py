"""Themis: finish-time fairness against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from hermesd.core.model import Quantum
from hermesd.core.trial import Trial, Use
from hermesd.policy.published.themis import Themis, alone_seconds, rho
from tests.policy.trials import on_device, trained, trial, view


def begun(number: int, step: int, seconds: float, planned: int | None, **known: object) -> Trial:
    """A trial at a step, with so many seconds an iteration."""
    speed = {"step_seconds": {"cpu": seconds}, "planned_steps": planned}
    return trained(number, [1.0] * step, **{**speed, **known})


def test_rho_is_the_shared_over_the_lone_time() -> None:
    # alone: 100 x 0.5 = 50 s; 60 s since submission and 80 x 0.5 = 40 s to go: 100 / 50
    each = begun(0, 20, 0.5, 100, submitted=40.0)
    assert alone_seconds(each) == 50.0
    assert rho(each, 100.0) == pytest.approx(2.0)


def test_alone_on_a_device_from_the_start_rho_is_one() -> None:
    assert rho(begun(0, 20, 0.5, 100, submitted=90.0), 100.0) == pytest.approx(1.0)


def test_of_unknown_length_the_steps_done_stand_for_the_whole() -> None:
    # 20 steps of 0.5 s within 60 s: 60 / 10
    assert rho(begun(0, 20, 0.5, None, submitted=40.0), 100.0) == pytest.approx(6.0)


def test_without_a_measured_speed_the_average_counts() -> None:
    each = trained(0, [1.0] * 20, planned_steps=100, use=Use(busy_seconds=10.0))
    assert alone_seconds(each) == 50.0


def test_an_unmeasured_trial_has_no_bound() -> None:
    assert rho(trial(planned_steps=100), 5.0) == math.inf
    assert rho(trained(0, [1.0]), 5.0) == math.inf


def test_the_largest_rho_goes_first() -> None:
    # rho = (100 + left) / alone: 140 / 50, 120 / 25, 190 / 100
    trials = [begun(0, 20, 0.5, 100), begun(1, 20, 0.25, 100), begun(2, 10, 1.0, 100)]
    plan = list(Themis().plan(view(*trials, trial(3), now=100.0)))
    assert [claim.trial for claim in plan] == ["s/3", "s/1", "s/0", "s/2"]
    assert [claim.reason for claim in plan] == [
        "not measured yet",
        "rho 4.8, 25.0 s alone",
        "rho 2.8, 50.0 s alone",
        "rho 1.9, 100.0 s alone",
    ]
    assert {claim.quantum for claim in plan} == {Quantum(30.0)}


def test_who_just_ran_competes_and_who_runs_does_not() -> None:
    stays, runs = begun(0, 20, 0.5, 100), on_device(begun(1, 20, 0.5, 100), expired=False)
    plan = Themis().plan(view(on_device(stays), runs))
    assert [claim.trial for claim in plan] == ["s/0"]
