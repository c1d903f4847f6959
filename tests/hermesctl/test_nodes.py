"""`hermesctl node`: what is said of nodes that are emptied, and what is asked for."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from hermesctl.commands import doctor
from hermesctl.commands.frameworks import InstalledFramework
from hermesctl.errors import ExitCode
from hermesctl.render import live
from hermesctl.render.node_views import more_machines
from hermesctl.render.views import explanation_view
from hermesctl.sdk import async_client
from hermesctl.sdk.address import Address
from hermesctl.sdk.records import Explanation, LeftOut
from hermesd.expecting import REMEDY
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from hermesd.security.enrollment import Membership
from tests.hermesctl.fake_head import FakeHead, event, trial
from tests.hermesctl.test_cli import hermesctl


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits looks often."""
    monkeypatch.setattr(async_client, "_LOOK_SECONDS", 0.01)


@pytest.fixture(autouse=True)
def no_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked here of the interpreter that trials would use."""

    async def none(python: str) -> list[InstalledFramework]:
        return []

    monkeypatch.setattr(doctor, "frameworks", none)


def busy_box(**fields: object) -> pb.Node:
    devices = [
        pb.DeviceStatus(device=types.Device(id=f"box/{n}", node="box", kind="cpu"), healthy=True)
        for n in range(2)
    ]
    devices[0].trial = "digits/1"
    return pb.Node(id="box", connected=True, devices=devices, **fields)


def states(*words: str) -> list[str]:
    """The state column of `node ls`."""
    table = hermesctl("node", "ls", *words).stdout.partition("\n\n")[0]
    return [line.split()[1] for line in table.splitlines()[1:]]


def test_ls_says_draining_until_nothing_is_left(head: FakeHead) -> None:
    head.nodes = [
        busy_box(draining=True),
        pb.Node(id="parks", connected=True, draining=True, parked=["digits/2"]),
        pb.Node(id="empty", connected=True, draining=True, only_copies=2),
        pb.Node(id="other", connected=True),
    ]
    assert states() == ["draining", "draining", "drained", "connected"]


def test_show_says_what_keeps_a_node_from_being_empty(head: FakeHead) -> None:
    parked = [f"digits/{n}" for n in range(2, 12)]
    head.nodes = [busy_box(draining=True, parked=parked, stuck=["digits/1"], only_copies=3)]
    shown = " ".join(hermesctl("node", "show", "box").stdout.split())
    assert "running digits/1, to the end of each quantum" in shown
    assert "digits/9 and 2 more" in shown
    assert "cannot leave digits/1: no checkpoint can restore it" in shown
    assert "the checkpoints of 3 unfinished trials" in shown
    head.nodes = [busy_box(stuck=["digits/1"])]
    assert "cannot leave" not in hermesctl("node", "show", "box").stdout


def test_show_says_what_a_node_lacks(head: FakeHead) -> None:
    head.nodes = [busy_box(lacking=["/data/imagenet: No such file or directory"])]
    shown = " ".join(hermesctl("node", "show", "box").stdout.split())
    assert "lacks /data/imagenet: No such file or directory" in shown
    found = json.loads(hermesctl("node", "show", "box", "-o", "json").stdout)["node"]
    assert found["lacking"] == ["/data/imagenet: No such file or directory"]


def test_drain_asks_for_it_once_and_says_where_it_stands(head: FakeHead) -> None:
    head.nodes = [busy_box()]
    result = hermesctl("node", "drain", "box", "-o", "json")
    assert json.loads(result.stdout)["node"]["draining"] is True
    (request,) = head.of(pb.DrainNodeRequest)
    assert (request.node, bool(request.request_id)) == ("box", True)
    assert "connected" in hermesctl("node", "undrain", "box").stdout


def test_a_node_is_lost_once_that_is_confirmed(head: FakeHead) -> None:
    head.nodes = [pb.Node(id="box", silent_seconds=90.0)]
    assert hermesctl("node", "lost", "box", input="n\n").exit_code != 0
    assert head.of(pb.LoseNodeRequest) == []
    assert "silent" in hermesctl("node", "lost", "box", "--yes").stdout
    (request,) = head.of(pb.LoseNodeRequest)
    assert (request.node, bool(request.request_id), request.for_good) == ("box", True, False)
    hermesctl("node", "lost", "box", "--for-good", "--yes")
    assert [each.for_good for each in head.of(pb.LoseNodeRequest)] == [False, True]


class Changing(list[pb.Node]):
    """A node that is another when it is looked at for the third time."""

    looks = 0

    def __init__(self, before: pb.Node, after: pb.Node) -> None:
        super().__init__([before])
        self.after = after

    def __iter__(self) -> Iterator[pb.Node]:
        self.looks += 1
        if self.looks == 3:
            self[0] = self.after
        return super().__iter__()


@pytest.mark.usefixtures("quick")
def test_drain_waits_until_the_node_is_empty(head: FakeHead) -> None:
    head.nodes = Changing(busy_box(), pb.Node(id="box", connected=True, draining=True))
    result = hermesctl("node", "drain", "box", "--wait")
    assert "drained" in result.stdout
    assert "running: digits/1" in result.stderr
    assert head.nodes.looks == 3


@pytest.mark.usefixtures("quick")
def test_a_wait_ends_when_somebody_undrains_the_node(head: FakeHead) -> None:
    head.nodes = Changing(busy_box(), busy_box(draining=False))
    result = hermesctl("node", "drain", "box", "--wait")
    assert result.exit_code == ExitCode.REFUSED
    assert "somebody undrained node box" in result.stderr


def test_a_submit_to_a_head_that_drains_all_its_nodes_says_so(head: FakeHead) -> None:
    head.nodes = [pb.Node(id="box", connected=True, draining=True)]
    head.add_study("digits")
    assert "hermesctl node undrain box" in hermesctl("status", "digits").output


def suspect_box() -> pb.Node:
    box = busy_box()
    box.devices[1].quarantine.until_unix_seconds = 1_700_000_000.0
    box.devices[1].quarantine.reason = "digits/1, digits/2 failed there: ECC error"
    for number, at in ((1, 10.0), (2, 20.0)):
        box.devices[1].strikes.add(
            trial=f"digits/{number}", error_kind="exception", detail="ECC", at_unix_seconds=at
        )
    return box


def test_a_device_in_quarantine_is_shown_with_its_evidence(head: FakeHead) -> None:
    head.nodes = [suspect_box()]
    assert "connected, 1 in quarantine" in hermesctl("node", "ls").stdout
    shown = hermesctl("node", "show", "box").stdout
    words = " ".join(shown.split())
    assert "box/1: digits/1, digits/2 failed there: ECC error; until 2023-11-14" in words
    assert "node release box/1" in words
    assert "quarantine until 2023-11-14 22:13:20Z" in words
    assert shown.index("digits/2 ") < shown.rindex("digits/1 "), "the newest first"
    head.nodes[0].quarantine.reason = "digits/1, digits/2 failed there"
    assert states() == ["quarantined,"]
    data = json.loads(hermesctl("node", "show", "box", "-o", "json").stdout)
    assert data["node"]["devices"][1]["strikes"][0]["trial"] == "digits/1"


def test_release_names_the_node_and_its_device(head: FakeHead) -> None:
    head.nodes = [busy_box()]
    assert hermesctl("node", "release", "box/gpu:0/1").exit_code == 0
    assert hermesctl("node", "release", "box").exit_code == 0
    asked = [(each.node, each.device) for each in head.of(pb.ReleaseNodeRequest)]
    assert asked == [("box", "gpu:0/1"), ("box", "")]


def test_why_says_what_a_trial_is_kept_from() -> None:
    left_out = (LeftOut("box/1", "others failed there", 1_700_000_000.0), LeftOut("x", "it", None))
    explanation = Explanation("s/1", "s/1 is waiting", (), "", "fifo", left_out)
    console = Console(width=200, file=io.StringIO())
    console.print(explanation_view(explanation, wide=False))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert "not on box/1 until 2023-11-14 22:13:20Z: others failed there" in lines
    assert "not on x: it" in lines


IN_QUARANTINE = "box/1 is in quarantine until 2023-11-14 22:13:20Z: digits/1, digits/2 failed there"


def test_a_quarantine_is_said_wherever_a_study_is_looked_at(head: FakeHead) -> None:
    head.nodes = [suspect_box()]
    head.add_study("digits", trial(1, state=types.TRIAL_STATE_RUNNING))
    for words in (["status", "digits"], ["doctor"]):
        said = " ".join(hermesctl(*words).output.split())
        assert IN_QUARANTINE in said
        assert "hermesctl node release box/1" in said
        assert "waits for a device" not in said
    head.studies["digits"].finished = True
    assert "quarantine" not in hermesctl("status", "digits").output


def test_a_study_without_a_device_says_who_has_them(head: FakeHead) -> None:
    head.nodes = [suspect_box()]
    head.add_study("fit", trial(1, "fit"))
    for words in (["status", "fit"], ["doctor"]):
        assert "fit waits for a device" not in hermesctl(*words).output
    head.studies["fit"].waits_for = "box/0 has digits/1 (of study digits)"
    for words in (["status", "fit"], ["doctor"]):
        assert "fit waits for a device: box/0 has digits/1 (of" in hermesctl(*words).output


def test_follow_says_soon_and_once_what_keeps_a_study_waiting(
    head: FakeHead, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "HEED_SECONDS", 0.0)
    head.nodes = [suspect_box()]
    head.submitted = {"waits_for": "box/0 has long/1 (of study long)"}
    head.asked_before = 5
    head.at_last = [event(5, pb.PUBLIC_EVENT_KIND_STUDY_FINISHED)]
    said = hermesctl("submit", str(project / "study.yaml"), "--follow").stderr
    assert said.count("digits waits for a device: box/0 has long/1") == 1
    assert said.count(IN_QUARANTINE) == 1


def test_ls_says_which_pool_a_node_is_of_and_when_it_rests(head: FakeHead) -> None:
    head.nodes = [
        pb.Node(id="gpu", connected=True, pool="gold", resting="it serves Sat-Sun"),
        pb.Node(id="old", connected=True),
    ]
    table, _, remarks = hermesctl("node", "ls").stdout.partition("\n\n")
    assert remarks.splitlines() == ["gpu rests: it serves Sat-Sun"]
    assert [line.split()[:3] for line in table.splitlines()] == [
        ["node", "state", "pool"],
        ["gpu", "resting", "gold"],
        ["old", "connected", "default"],
    ]


def test_show_says_how_fast_a_device_is_beside_its_kind(head: FakeHead) -> None:
    box = busy_box()
    head.nodes = [box]
    assert "speed" not in hermesctl("node", "show", "box").stdout, "nothing was compared yet"
    box.devices[0].speed, box.devices[0].comparisons = 0.52, 14
    lines = hermesctl("node", "show", "box").stdout.splitlines()
    rows = {line.split()[0]: line.split() for line in lines if line.startswith(("device ", "box/"))}
    assert "speed" in rows["device"]
    assert "52.0%" in "".join(rows["box/0"]).replace(" %", "%")
    assert "52.0%" not in "".join(rows["box/1"])
    seen = json.loads(hermesctl("node", "show", "box", "-o", "json").stdout)["node"]["devices"]
    assert [(each["speed"], each["comparisons"]) for each in seen] == [(0.52, 14), (1.0, 0)]


def test_show_says_why_a_node_rests_and_to_whom_a_device_was_left(head: FakeHead) -> None:
    box = busy_box(resting="it serves Sat-Sun; again from Sat 00:00", stuck=["digits/1"])
    box.devices[1].yielded = "process 7 (python) of bob uses it"
    head.nodes = [box]
    shown = " ".join(hermesctl("node", "show", "box").stdout.split())
    assert "resting it serves Sat-Sun; again from Sat 00:00 running digits/1 cannot" in shown
    assert "yielded: process 7 (python) of bob uses it" in shown
    assert "undrain" not in shown, "that would not help"


def test_a_submit_to_a_head_whose_nodes_rest_says_so(head: FakeHead, project: Path) -> None:
    head.nodes = [pb.Node(id="box", connected=True, resting="it serves Sat-Sun")]
    said = hermesctl("submit", str(project / "study.yaml")).stderr
    assert "nothing new runs on the head at" in said
    assert "node box rests: it serves Sat-Sun" in said


def test_pool_is_a_flag_of_submit_and_preview(head: FakeHead, project: Path) -> None:
    for verb in ("submit", "preview"):
        result = hermesctl(verb, str(project / "study.yaml"), "--pool", "gold")
        assert result.exit_code == 0, result.stderr
    requests = head.of(pb.SubmitStudyRequest)
    assert [request.spec.pool for request in requests] == ["gold", "gold"]
    assert "2 trials, pool gold, policy best_first" in result.stdout


def test_a_silent_node_with_trials_on_it_is_said_wherever_a_study_is_looked_at(
    head: FakeHead,
) -> None:
    head.add_study("digits", trial(1, state=types.TRIAL_STATE_RUNNING))
    head.nodes = [busy_box(), pb.Node(id="old", silent_seconds=9000.0)]
    assert "silent" not in hermesctl("status", "digits").output, "nothing was on it"
    gone = busy_box()
    gone.connected = False
    head.nodes = [gone, pb.Node(id="other", connected=True)]
    said = " ".join(hermesctl("status", "digits").output.split())
    assert "note: box is silent: its trials go on elsewhere once it counts as lost" in said
    assert "hermesctl node lost box makes that happen at once" in said
    head.nodes = [gone]
    said = " ".join(hermesctl("status", "digits").output.split())
    assert "none of its 1 node is connected (box); they attach by themselves" in said


@pytest.mark.parametrize(
    ("address", "how"),
    [
        (Address("unix:/s", "your own hermesd head"), "hermesd node adds this machine"),
        (Address("127.0.0.1:7411", "--head"), "hermesd node --head 127.0.0.1:7411 adds the"),
        (
            Address("lab:7411", "context lab", membership=Membership(Path("/x"))),
            "hermesctl node token prints the command by which another machine joins it",
        ),
    ],
)
def test_how_a_machine_is_added_goes_by_the_address(address: Address, how: str) -> None:
    assert more_machines(address).startswith(how), "a head that was logged in to takes no other"


def test_ls_says_until_when_a_place_is_in_quarantine(head: FakeHead) -> None:
    head.nodes = [suspect_box()]
    _, _, remarks = hermesctl("node", "ls").stdout.partition("\n\n")
    assert " ".join(remarks.split()).startswith(IN_QUARANTINE)


def test_a_node_that_is_lost_is_waited_for_no_more(head: FakeHead) -> None:
    gone = busy_box(lost=True, silent_seconds=90.0)
    gone.connected = False
    head.nodes = [gone, pb.Node(id="other", connected=True)]
    assert states() == ["lost,", "connected"]
    assert json.loads(hermesctl("node", "ls", "-o", "json").stdout)["nodes"][0]["lost"]
    head.add_study("digits", trial(1, state=types.TRIAL_STATE_RUNNING))
    assert "box is silent" not in " ".join(hermesctl("status", "digits").output.split())
    said = " ".join(hermesctl("doctor").output.split())
    assert "lost: its trials go on elsewhere" in said
    assert "hermesctl node lost box --for-good" in said


def test_one_device_is_one(head: FakeHead) -> None:
    head.nodes = [busy_box()]
    del head.nodes[0].devices[1]
    assert "node box 1 device " in " ".join(hermesctl("doctor").output.split())


def test_what_is_wrong_with_a_daemon_is_said_where_people_look(head: FakeHead) -> None:
    wrong = "another machine answers as this node, from ipv4:10.0.0.9:5, and is refused: end it"
    head.nodes = [busy_box(warnings=[wrong])]
    for words in (["node", "ls"], ["node", "show", "box"], ["doctor"]):
        assert wrong in " ".join(hermesctl(*words).output.split())
    assert hermesctl("doctor").exit_code == ExitCode.REFUSED


def test_what_would_have_a_node_do_better_is_told_as_how_to_fix_it(head: FakeHead) -> None:
    fact = f"no images of processes: there is no criu here{REMEDY}install CRIU 4"
    head.nodes = [pb.Node(id="box", connected=True, facts=[fact])]
    checks = json.loads(hermesctl("doctor", "-o", "json").stdout)["checks"]
    found = next(check for check in checks if "no images" in check["words"])
    assert found["words"] == "no images of processes: there is no criu here"
    assert found["remedy"] == "install CRIU 4"
