"""`hermesctl preview`: when a study can be expected to have something, or why nobody knows."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hermesctl.cli import app
from hermesctl.errors import ExitCode
from hermesctl.render.replay_views import forecast_view
from hermesctl.sdk import forecast as forecasting
from hermesctl.sdk.forecast import Forecast
from hermesctl.sdk.likeness import NONE_EARLIER
from hermesctl.study_file.write import plugin_label
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.head.heads import world
from tests.hermesctl.fake_head import FakeHead, trial
from tests.hermesctl.past_study import falling, hermesctl, trained
from tests.hermesctl.test_render import shown
from tests.study_specs import plugin

COMPLETED = types.TRIAL_STATE_COMPLETED


async def test_a_preview_goes_by_the_curves_of_an_earlier_study(
    tmp_path: Path, project: Path
) -> None:
    curves = [falling(floor) for floor in (3.0, 4.0, 5.0, 1.0)]
    same = hashlib.sha256((project / "train.py").read_bytes()).hexdigest()
    async with trained(tmp_path, curves, program_sha256=same) as head:
        file = str(project / "study.yaml")
        told = await hermesctl(head, "preview", file, "--set", "schedule.policy.name=asha")
        assert told.code == ExitCode.OK, told.stderr
        earlier = "digits (4 trials, the same script, the same parameters)"
        # The node says nothing more: it may count as silent by now.
        assert told.stdout.count("on 1 device") == 1
        assert f", going by {earlier}:" in told.stdout
        lines = told.stdout.splitlines()
        heading = next(at for at, line in enumerate(lines) if line.startswith("expected"))
        told_below = [line.split()[0] for line in lines[heading + 1 :]]
        assert told_below == ["asha", "fifo", "first", "within"]  # what two headings mean

        wanted = await hermesctl(head, "preview", file, "-o", "json")
        expected = json.loads(wanted.stdout)["forecast"]["expected"]
        assert (expected["study"], expected["trials"], expected["draws"]) == ("digits", 2, 10)
        assert [each["policy"] for each in expected["policies"]] == ["best_first", "fifo"]
        fifo = expected["policies"][1]
        # Two trials of 30 iterations in 0.5 s each, and 0.1 s to start either.
        assert fifo["all_done"]["median"] == pytest.approx(1.2)
        assert fifo["first_good"]["least"] < fifo["all_done"]["least"]
        assert not [s for s in (await studies(head)) if s != "digits"]

        (project / "train.py").write_text("print('another program of that name')\n")
        told = await hermesctl(head, "preview", file)
        unlike = "(4 trials, a program of the same name in another folder, the same parameters)"
        assert unlike in told.stdout


async def test_a_study_that_no_node_can_take_has_no_forecast(tmp_path: Path, project: Path) -> None:
    async with trained(tmp_path, [falling(floor) for floor in (3.0, 4.0, 1.0)]) as head:
        file = str(project / "study.yaml")
        much = "resources.memory_bytes=68719476736"
        told = await hermesctl(head, "preview", file, "--set", much)
        assert told.code == ExitCode.OK, told.stderr
        words = " ".join(told.stdout.split())
        assert (
            "no forecast: no node can take its trials: node box cannot take it: there is no device"
            " with 64.0 GiB of memory (the largest has 1.0 GiB)"
        ) in words
        assert "first good" not in words
        wanted = await hermesctl(head, "preview", file, "--set", much, "-o", "json")
        forecast = json.loads(wanted.stdout)["forecast"]
        assert forecast["expected"] is None
        assert "node box cannot take it" in forecast["reason"]


async def studies(head: Any) -> list[str]:
    listed = await head.control.ListStudies(pb.ListStudiesRequest())
    return [each.id for each in listed.studies]


async def test_without_an_earlier_study_it_says_so(tmp_path: Path, project: Path) -> None:
    async with world(tmp_path / "head") as head:
        told = await hermesctl(head, "preview", str(project / "study.yaml"))
        assert told.code == ExitCode.OK
        assert NONE_EARLIER in told.stdout


def before(head: FakeHead) -> None:
    ended = (trial(n, state=COMPLETED) for n in (1, 2, 3))
    head.add_study("digits", *ended, reported=["loss"])
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
    assert "no forecast: it takes more than 0 s" in previewed(project)


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
    expected |= {"trials": 8, "good": 2}
    told = shown(forecast_view(Forecast(expected, "the same script", attached=0, busy=2)))
    assert "on 1 device (none of which is there now), going by digits (4 trials, the same" in told
    assert "5.0 s" in told
    assert "20.0 s (10.0 s … 1 min)" in told
    assert "first good: when a trial first reaches what only the 2 best of 8 ever reach" in told
    assert "within 2 %: when the best so far is within 2 % of the way from the start of" in told
    assert "later, as 2 unfinished studies will share the devices" in told
    assert "pbt" not in told
    expected["policies"] = [{**policies[0], "policy": "pbt:ready=9"}]
    assert "pbt: as if it replaced no trial" in shown(forecast_view(Forecast(expected)))
