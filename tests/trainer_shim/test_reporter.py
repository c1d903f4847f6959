"""What the agent reports of its iterations: each value that there was, however it was recorded."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_shim.channel.agent_channel import AgentChannel
from trainer_shim.channel.frames import fits, receive
from trainer_shim.reporting import MAX_POINTS, MOST, MetricNames, Reporter


class Told:
    """A reporter, and what it has told."""

    def __init__(self, ours: socket.socket, hosts: socket.socket) -> None:
        self.full: list[str] = []
        self.reporter = Reporter(
            AgentChannel(ours).send, "loss", MetricNames("loss", self.full.append)
        )
        self._hosts = hosts

    def report(self) -> dict[str, Any]:
        self.reporter.report()
        message = receive(self._hosts)
        assert message is not None
        return message


@pytest.fixture
def told() -> Iterator[Told]:
    ours, hosts = socket.socketpair()
    with ours, hosts:
        yield Told(ours, hosts)


def test_values_of_one_step_are_one_point_and_the_signal_covers_all(told: Told) -> None:
    told.reporter.record_signal(7, 3.0, examples=16)
    told.reporter.record_signal(8, 1.0, examples=16)
    told.reporter.record(8, {"epoch_loss": 2.0})
    told.reporter.record(9, {"loss": 5.0, "accuracy": 0.5, "name": "a step"})
    told.reporter.record(10, {})
    report = told.report()
    assert report["points"] == [
        [7, {"loss": 3.0}],
        [8, {"loss": 1.0, "epoch_loss": 2.0}],
        [9, {"loss": 5.0, "accuracy": 0.5}],
        [10, {}],
    ]
    assert report["signal"] == {"count": 3, "first": 3.0, "last": 5.0, "min": 1.0, "max": 5.0}
    assert (report["first_step"], report["last_step"]) == (7, 10)
    assert (report["count"], report["examples"]) == (4, 32)
    last = {"loss": 5.0, "accuracy": 0.5, "epoch_loss": 2.0}
    assert told.reporter.last_values == last


def test_a_signal_that_is_no_number_leaves_its_step(told: Told) -> None:
    told.reporter.record_signal(1, [0.5, 0.25])
    told.reporter.record_signal(2, float("nan"))
    report = told.report()
    assert [step for step, _ in report["points"]] == [1, 2]
    assert report["points"][0][1] == {}
    nothing = {"count": 1, "first": "nan", "last": "nan", "min": None, "max": None}
    assert report["signal"] == nothing


def test_of_many_steps_the_last_and_those_with_an_epochs_values_are_points(told: Told) -> None:
    steps = 10 * MAX_POINTS
    for step in range(1, steps + 1):
        told.reporter.record_signal(step, float(step))
        if step == 77:
            told.reporter.record(step, {"val_loss": 0.5})
    report = told.report()
    points = dict(report["points"])
    assert points[77] == {"loss": 77.0, "val_loss": 0.5}
    assert points[steps] == {"loss": float(steps)}
    assert MAX_POINTS <= len(points) <= MAX_POINTS + 1
    assert report["count"] == report["signal"]["count"] == steps
    assert (report["signal"]["min"], report["signal"]["max"]) == (1.0, float(steps))


def test_of_too_many_metrics_the_first_are_told_and_the_signal_always(told: Told) -> None:
    """Named by their steps, or all at once; said once."""
    for step in range(1, MOST + 100):
        told.reporter.record(step, {f"loss_{step}": 1.0})
    told.reporter.record(MOST + 100, {"loss": 2.0, "loss_1": 3.0, "late": 4.0})
    report = told.report()
    assert report["points"][-1] == [MOST + 100, {"loss": 2.0, "loss_1": 3.0}]
    assert report["signal"]["count"] == 1
    assert len(told.reporter.last_values) == MOST
    assert len(told.full) == 1
    assert f"'loss_{MOST}' is left out" in told.full[0]


@given(st.lists(st.text(max_size=3000), min_size=1, max_size=300, unique=True))
def test_a_step_fits_one_frame_whatever_its_metrics_are_called(names: list[str]) -> None:
    ours, hosts = socket.socketpair()
    with ours, hosts:
        told = Told(ours, hosts)
        told.reporter.record(1, dict.fromkeys(names, -1.2345678901234568e-300))
        found = told.report()["points"][0][1]
    assert (found.keys() == set(names)) is not bool(told.full)
    assert fits({"kind": "completed", "metrics": told.reporter.last_values})


class Spoilt:
    """A value that cannot be read any more, as of an array that was given away."""

    def __float__(self) -> float:
        raise RuntimeError("deleted")


def test_a_value_that_cannot_be_read_is_left_out(told: Told) -> None:
    told.reporter.record(1, {"loss": 1.0, "gone": Spoilt(), "huge": 10**400})
    told.reporter.record_signal(2, Spoilt())
    assert told.report()["points"] == [[1, {"loss": 1.0}], [2, {}]]


def test_passes_without_number_fit_a_frame(told: Told) -> None:
    for step in range(100_000):
        told.reporter.begins_pass(step)
    told.reporter.record_signal(100_000, 1.0)
    assert told.report()["passes"][-1] == 99_999
