"""What the agent reports of its iterations: each value that there was, however it was recorded."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from trainer_shim.mailbox import Mailbox
from trainer_shim.report import MAX_POINTS
from trainer_shim.reporter import Reporter
from trainer_shim.wire import receive


class Told:
    """A reporter, and what it has told."""

    def __init__(self, ours: socket.socket, hosts: socket.socket) -> None:
        self.reporter = Reporter(Mailbox(ours), "loss")
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
