"""What scripts build on: forms asked for in any place, and the documents' own keys."""

from __future__ import annotations

import json
import os

import pytest
import yaml
from typer.testing import CliRunner, Result

from hermesctl.cli import app
from hermesctl.render.output import json_text
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.hermesctl.fake_head import FakeHead, event, trial


def hermesctl(*args: str) -> Result:
    return CliRunner().invoke(app, list(args), catch_exceptions=False)


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("study -o json", "study ls -o json"),
        ("study -o wide", "study ls -o wide"),
        ("study --output json digits", "study show digits --output json"),
        ("node -o json", "node ls -o json"),
        ("trial -o json digits/1", "trial show digits/1 -o json"),
        ("trial -o json", "trial ls -o json"),
        ("trial --head unix:{} ls", "trial ls --head unix:{}"),
        ("study -o csv show digits", "study show digits -o csv"),
    ],
)
def test_an_option_before_a_noun_s_verb_keeps_its_value(
    head: FakeHead, short: str, full: str
) -> None:
    head.add_study("digits", trial(1), trial(2))
    head.nodes = [pb.Node(id="box", connected=True)]
    socket = os.environ["HERMES_STATE"] + "/head.sock"
    first, second = (hermesctl(*words.format(socket).split()) for words in (short, full))
    assert first.exit_code == 0, first.output
    assert first.stdout == second.stdout


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_the_document_of_a_node_has_the_version_of_documents(head: FakeHead, form: str) -> None:
    head.nodes = [pb.Node(id="box", connected=True, version="0.1.0")]
    document = yaml.safe_load(hermesctl("node", "show", "box", "-o", form).stdout)
    assert document["version"] == 1
    assert (document["node"]["id"], document["node"]["version"]) == ("box", "0.1.0")


def test_no_document_has_a_version_of_its_own() -> None:
    with pytest.raises(AssertionError):
        json_text({"version": "0.1.0"})


def test_a_trial_shows_the_cpu_that_it_used_over_its_steps(head: FakeHead) -> None:
    head.add_study("digits", trial(1, cpu_use=1.5, attempt=1, memory_bytes=1))
    head.metrics = ["loss", "hermes/cpu_use"]
    # The fake head's curve: 3, 2 and a number that is none.
    assert "1.50 cores  █▁!" in hermesctl("trial", "show", "digits/1").stdout
    head.metrics = ["loss"]
    without = hermesctl("trial", "show", "digits/1").stdout
    assert "1.50 cores" in without
    assert "█" not in without


def test_a_trial_shows_the_memory_that_it_took_on_its_gpu(head: FakeHead) -> None:
    head.add_study("digits", trial(1, attempt=1, memory_bytes=2 << 30, device_memory_bytes=6 << 30))
    told = hermesctl("trial", "show", "digits/1").stdout.splitlines()
    assert [line.split()[-2:] for line in told if "memory" in line] == [
        ["2.0", "GiB"],
        ["6.0", "GiB"],
    ]


def test_a_trial_shows_its_cpu_where_its_memory_is_unknown(head: FakeHead) -> None:
    head.add_study("digits", trial(1, cpu_use=1.5, attempt=1))
    told = hermesctl("trial", "show", "digits/1").stdout
    assert "1.50 cores" in told
    assert "memory" not in told


def test_a_trial_shows_how_busy_its_device_was(head: FakeHead) -> None:
    head.add_study("digits", trial(1))
    assert "device use" not in hermesctl("trial", "show", "digits/1").stdout
    head.metrics = ["loss", "hermes/device_use"]
    assert "device use" in hermesctl("trial", "show", "digits/1").stdout


def test_status_has_the_devices_for_scripts_too(head: FakeHead) -> None:
    running = trial(1, state=types.TRIAL_STATE_RUNNING, device="box/cpu0")
    head.add_study("digits", running, trial(2))
    document = json.loads(hermesctl("status", "-o", "json").stdout)
    assert document["devices"] == [{"device": "box/cpu0", "trial": "digits/1"}]


def test_tail_offers_the_forms_that_it_has(head: FakeHead) -> None:
    told = " ".join(hermesctl("tail", "--help").stdout.replace("│", " ").split())
    assert "json" in told
    assert "yaml" not in told
    assert "csv" not in told


def test_a_renewal_that_answers_a_milestone_is_told(head: FakeHead) -> None:
    head.add_study("digits", trial(1), trial(2), finished=True)
    renewed, passed = pb.PUBLIC_EVENT_KIND_RENEWED, pb.PUBLIC_EVENT_KIND_MILESTONE_PASSED
    head.events = [
        event(1, renewed, trial="digits/1"),
        event(2, passed, trial="digits/1"),
        event(3, renewed, trial="digits/2"),
        event(4, renewed, trial="digits/1"),
        event(5, renewed, trial="digits/1"),
    ]
    lines = hermesctl("tail").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["2", "4"]
