"""`hermesctl preview`: when a study can be expected to have something, or why nobody knows."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hermesctl import forecast as forecasting
from hermesctl.cli import app
from hermesctl.errors import ExitCode
from hermesctl.forecast import (
    NONE_EARLIER,
    Forecast,
    forecast_view,
    nearest,
    overlap,
    program,
)
from hermesctl.from_wire import study as study_of
from hermesctl.records import Study, TrialState
from hermesctl.study_writer import plugin_label
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.head.heads import world
from tests.hermesctl.fake_head import FakeHead, trial
from tests.hermesctl.past_study import falling, hermesctl, trained
from tests.hermesctl.test_render import shown
from tests.study_specs import plugin, spec

COMPLETED = types.TRIAL_STATE_COMPLETED


async def test_a_preview_goes_by_the_curves_of_an_earlier_study(
    tmp_path: Path, project: Path
) -> None:
    curves = [falling(floor) for floor in (3.0, 4.0, 5.0, 1.0)]
    async with trained(tmp_path, curves) as head:
        file = str(project / "study.yaml")
        told = await hermesctl(head, "preview", file, "--set", "schedule.policy.name=asha")
        assert told.code == ExitCode.OK, told.stderr
        earlier = "digits (4 trials, the same program, the same parameters)"
        assert f"on 1 device, going by {earlier}:" in told.stdout
        lines = told.stdout.splitlines()
        heading = next(at for at, line in enumerate(lines) if line.startswith("expected"))
        assert [line.split()[0] for line in lines[heading + 1 :]] == ["asha", "fifo"]

        wanted = await hermesctl(head, "preview", file, "-o", "json")
        expected = json.loads(wanted.stdout)["forecast"]["expected"]
        assert (expected["study"], expected["trials"], expected["draws"]) == ("digits", 2, 10)
        assert [each["policy"] for each in expected["policies"]] == ["best_first", "fifo"]
        fifo = expected["policies"][1]
        # Two trials of 30 iterations in 0.5 s each, and 0.1 s to start either.
        assert fifo["all_done"]["median"] == pytest.approx(1.2)
        assert fifo["first_good"]["least"] < fifo["all_done"]["least"]
        assert not [s for s in (await studies(head)) if s != "digits"]


async def studies(head: Any) -> list[str]:
    listed = await head.control.ListStudies(pb.ListStudiesRequest())
    return [each.id for each in listed.studies]


async def test_without_an_earlier_study_it_says_so(tmp_path: Path, project: Path) -> None:
    async with world(tmp_path / "head") as head:
        told = await hermesctl(head, "preview", str(project / "study.yaml"))
        assert told.code == ExitCode.OK
        assert NONE_EARLIER in told.stdout


def before(head: FakeHead) -> None:
    head.add_study("digits", *(trial(n, state=COMPLETED) for n in (1, 2, 3)))
    head.studies["digits"].spec.parameters.add(name="lr")


def previewed(project: Path) -> str:
    result = CliRunner().invoke(app, ["preview", str(project / "study.yaml")])
    assert result.exit_code == ExitCode.OK, result.output
    assert "2 trials, policy best_first" in result.stdout
    return result.stdout


def test_a_forecast_that_fails_leaves_the_preview_as_it_is(head: FakeHead, project: Path) -> None:
    before(head)
    # What the fake head exports is no export.
    assert "no forecast: curves = digits: expected line 1 to be one" in previewed(project)


def test_a_forecast_that_takes_long_is_left_out(
    head: FakeHead, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before(head)
    monkeypatch.setattr(forecasting, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(forecasting, "simulated", lambda *_: asyncio.Event().wait())
    assert "no forecast: it takes over 0 s" in previewed(project)


def earlier(name: str, trained: int, at: float, **fields: Any) -> Study:
    one = pb.Study(id=name, spec=spec(**fields), submitted_unix_seconds=at)
    return replace(study_of(one), counts={TrialState.COMPLETED: trained})


WANTED = {"program": "code/train.py", "parameters": {"lr": {}, "batch": {}}}


def test_the_program_counts_before_the_parameters_and_these_before_the_number() -> None:
    other_program = earlier("a", 9, 4.0, program="other.py")
    other_names = earlier("b", 9, 3.0, parameters={"lr": {"value": 1}, "momentum": {"value": 1}})
    same, fewer = earlier("c", 5, 1.0), earlier("d", 4, 2.0)
    everyone = [other_program, other_names, same, fewer]
    found = nearest(everyone, WANTED)
    assert found == (same, "the same program, the same parameters")
    assert nearest(everyone[:2], WANTED) == (
        other_names,
        "the same program, 33 % of the parameters' names",
    )
    assert nearest(everyone[:1], WANTED) == (
        other_program,
        "another program, the same parameters",
    )


def test_of_two_alike_the_newer_counts_and_hardly_trained_ones_do_not() -> None:
    old, new, barely = earlier("a", 5, 1.0), earlier("b", 5, 2.0), earlier("c", 2, 3.0)
    found = nearest([old, new, barely], WANTED)
    assert found is not None
    assert found[0] is new
    assert nearest([barely], WANTED) is None
    strange = earlier("d", 9, 1.0, program="other.py", parameters={"depth": {"value": 3}})
    assert nearest([strange], WANTED) is None


def test_a_program_of_the_same_file_name_without_a_common_parameter_is_another() -> None:
    namesake = earlier("a", 9, 1.0, parameters={"momentum": {"value": 0.9}})
    assert nearest([namesake], WANTED) is None
    without = earlier("b", 9, 1.0, parameters={})
    assert nearest([without], {"program": "train.py"}) == (
        without,
        "the same program, the same parameters",
    )


def test_names_of_parameters_overlap_by_their_share() -> None:
    assert overlap({"parameters": {"a": 1, "b": 1}}, {"parameters": {"b": 1, "c": 1}}) == 1 / 3
    assert overlap({}, {}) == 1.0
    assert program({"command": ["python", "x.py"]}) == "python x.py"


def test_a_policy_keeps_the_settings_of_the_study() -> None:
    asha = plugin("asha", eta=2, min_rung=0.25, winner=True, marks=[25, 50])
    assert plugin_label(asha) == "asha:eta=2,min_rung=0.25,winner=true,marks=25:50"
    assert plugin_label(plugin("fifo")) == "fifo"
    homes = plugin("homes", G_thres=2)
    assert plugin_label(asha, homes).endswith(",G_thres=2,placement=homes")


def test_it_says_on_what_it_counts() -> None:
    span = {"median": 20.0, "least": 10.0, "most": 60.0}
    same = {"median": 5.0, "least": 5.0, "most": 5.0}
    policy = {"policy": "asha", "first_good": same, "near_best": same, "best": span}
    policies = [policy | {"all_done": span}]
    expected = {"study": "digits", "trained": 4, "devices": 1, "policies": policies}
    told = shown(forecast_view(Forecast(expected, "the same program", attached=0, busy=2)))
    assert "on 1 device (none is attached now), going by digits (4 trials, the same" in told
    assert "5.0 s" in told
    assert "20.0 s (10.0 s … 1 min)" in told
    assert "later, as 2 unfinished studies will share the devices" in told
