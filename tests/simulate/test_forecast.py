"""What an earlier study says of one to come, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hermesd.cli import app
from hermesd.core.model import Plugin
from hermesd.refusal import Refused
from hermesd.sim.contenders import contenders
from hermesd.sim.curves import Curves, Switch
from hermesd.sim.exports import open_export
from hermesd.sim.forecast import Span, drawn, first_good, forecast
from tests.simulate.small import EXAMPLE, job, play
from tests.simulate.test_replay import CURVES as RAN
from tests.simulate.test_replay import ran

CURVES = Curves("five", tuple(job([10, 10 - n]) for n in range(5)), Switch(0, 0, 0))


def test_each_trial_is_drawn_once_while_there_are_enough() -> None:
    assert {job.losses for job in drawn(CURVES, 5, 0).jobs} == {j.losses for j in CURVES.jobs}
    assert len({job.losses for job in drawn(CURVES, 3, 0).jobs}) == 3
    assert len(drawn(CURVES, 12, 0).jobs) == 12
    assert len(drawn(CURVES, 1, 0).good) == 1


def test_a_draw_is_its_number_and_what_is_good_is_decided_among_those_drawn() -> None:
    orders = [drawn(CURVES, 3, number) for number in range(8)]
    assert orders == [drawn(CURVES, 3, number) for number in range(8)]
    assert len({order.jobs for order in orders}) > 1
    for order in orders:
        lowest = min(range(3), key=lambda place: order.jobs[place].losses[-1])
        assert lowest in order.good


def test_the_first_good_trial_is_there_when_it_reaches_the_goal() -> None:
    # One device: the slow trial takes 0.64 + 4 s, the steep one starts in 0.64 s and needs 2 s.
    assert first_good(EXAMPLE, play(EXAMPLE, Plugin("fifo"))) == pytest.approx(4.64 + 2.64)


def test_spans_are_over_the_draws(tmp_path: Path) -> None:
    path = ran(tmp_path / "s.jsonl")
    assert len(open_export(path).trials) == 4
    told = forecast(path, contenders("fifo"), devices=2, trials=4, draws=5)
    assert (told.study, told.trained, told.trials, told.devices, told.draws) == ("s", 4, 4, 2, 5)
    (fifo,) = told.policies
    # Two rounds of two trials, nine seconds each, whatever the order.
    assert fifo.all_done == Span(18.0, 18.0, 18.0)
    assert (fifo.best.least, fifo.best.most) == (9.0, 18.0)
    assert fifo.first_good.least <= fifo.near_best.least <= fifo.best.least


def test_trials_that_were_cut_short_say_nothing_of_lengths(tmp_path: Path) -> None:
    path = ran(tmp_path / "s.jsonl", curves=(*RAN, [9.0, 8.0]))
    lines = path.read_text().splitlines()
    cut = json.loads(lines[5])
    cut["trial"]["phase"] = "cancelled"
    lines[5] = json.dumps(cut)
    path.write_text("\n".join(lines))
    assert len(open_export(path).trials) == 5
    told = forecast(path, contenders("fifo"), devices=2, trials=4, draws=5)
    assert told.trained == 4
    assert told.policies[0].all_done == Span(18.0, 18.0, 18.0)


def test_without_any_trial_that_ended_there_is_no_forecast(tmp_path: Path) -> None:
    path = ran(tmp_path / "s.jsonl")
    path.write_text(path.read_text().replace('"completed"', '"cancelled"'))
    with pytest.raises(Refused, match="at least one trial that came to its end"):
        forecast(path, contenders("fifo"), devices=2, trials=4, draws=1)


def test_the_command_prints_it_as_json(tmp_path: Path) -> None:
    path = str(ran(tmp_path / "s.jsonl"))
    words = ["forecast", path, "--trials", "8", "--devices", "4", "--policy", "asha,fifo"]
    done = CliRunner().invoke(app, [*words, "--draws", "2"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["version"], told["study"], told["draws"]) == (1, "s", 2)
    assert [each["policy"] for each in told["policies"]] == ["asha", "fifo"]
    assert told["policies"][1]["all_done"]["median"] == 18.0
