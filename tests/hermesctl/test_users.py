"""What is shown of users, of whose a study is, and of devices that others have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hermesctl.cli import app
from hermesctl.errors import ExitCode, UsageError
from hermesctl.render.node_views import devices_table, nodes_table
from hermesctl.render.tables import facts_table, studies_table
from hermesctl.render.user_views import user_facts, users_table
from hermesctl.sdk import contexts
from hermesctl.sdk.address import find_head
from hermesctl.sdk.contexts import Context
from hermesctl.sdk.from_wire import record
from hermesctl.sdk.records import Member, Node, Study, User
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from hermesd.security.enrollment import Membership
from hermesd.security.identity import Role
from tests.hermesctl.test_render import shown

ALICE = User("alice", 2.0, 4, None, 3, 12, 2, 7200.0, 0.75, 2 / 3, 4 * 3600.0)
BOB = User("bob", 1.0, None, 20, 0, 1, 1, 2400.0, 0.25, 1 / 3, 4 * 3600.0)
MEMBERS = [
    Member(Role.USER, "alice", 1_700_000_000.0),
    Member(Role.ADMIN, "alice", 1_700_000_000.0),
    Member(Role.NODE, "box", 1_700_000_000.0),
]


def test_users_and_nodes_stand_in_one_table_each_with_what_they_have() -> None:
    people = {user.name: user for user in (ALICE, BOB)}
    lines = shown(users_table(MEMBERS, people, wide=False)).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["alice", "admin", "3/4", "12", "2", "h", "75.0", "%", "2023-11-14", "22:13:20Z"],
        ["alice", "user", "3/4", "12", "2", "h", "75.0", "%", "2023-11-14", "22:13:20Z"],
        ["bob", "-", "0", "1/20", "40", "min", "25.0", "%", "-"],
        ["box", "node", "-", "-", "-", "-", "2023-11-14", "22:13:20Z"],
    ]
    wide = shown(users_table(MEMBERS, people, wide=True))
    assert "66.7 %" in wide


def test_what_a_user_may_have_is_told_beside_what_they_have() -> None:
    words = " ".join(shown(facts_table(user_facts(ALICE, MEMBERS))).split())
    assert "on 3 devices, at most 4" in words
    assert "unfinished 12 trials, no quota" in words
    assert "used 2 h on devices, each second counting half as much after 4 h" in words
    assert "share 75.0 % of what all have used, counted so" in words
    assert "fair share 66.7 %, by a weight of 2 beside" in words
    assert "certificate user, until 2023-11-14 22:13:20Z; admin, until" in words
    assert "certificate none" in " ".join(shown(facts_table(user_facts(BOB, MEMBERS))).split())


def test_a_logout_says_the_way_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "hermes" / "contexts" / "lab"
    folder.mkdir(parents=True)
    about = {"head": "10.0.0.1:7411", "role": "user", "name": "alice"}
    (folder / "membership.json").write_text(json.dumps(about))
    said = " ".join(CliRunner().invoke(app, ["logout", "lab"]).output.split())
    assert "to log in again, with a new token from an admin: " in said
    assert said.endswith("login 10.0.0.1:7411 TOKEN --user alice --name lab")
    assert not folder.exists()


@pytest.mark.parametrize("content", ["", "[]", '{"head": 7}', '{"head": "10.0.0.1:7411"}'])
@pytest.mark.parametrize("words", ["study ls", "--head lab study ls", "context"])
def test_a_login_that_is_damaged_is_named_and_can_be_forgotten(
    content: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "hermes" / "contexts" / "lab"
    folder.mkdir(parents=True)
    (folder / "membership.json").write_text(content)
    contexts.use({"XDG_CONFIG_HOME": str(tmp_path)}, "lab")
    result = CliRunner().invoke(app, words.split())
    said = " ".join(result.output.split())
    assert result.exit_code == ExitCode.USAGE
    assert f"{folder / 'membership.json'} holds " in said
    assert f"remove {folder} and join its head again with a new token" in said
    said = " ".join(CliRunner().invoke(app, ["logout", "lab"]).output.split())
    assert said.endswith("login HOST:PORT TOKEN --name lab")
    assert not folder.exists()


def test_a_damaged_login_keeps_nobody_from_another_head(tmp_path: Path) -> None:
    about = json.dumps({"head": "10.0.0.1:7411", "role": "user", "name": "alice"})
    for name, content in (("lab", about), ("broken", "[]")):
        folder = tmp_path / "hermes" / "contexts" / name
        folder.mkdir(parents=True)
        (folder / "membership.json").write_text(content)
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert find_head("10.0.0.1:7411", environment).origin == "context lab"
    with pytest.raises(UsageError, match=r"broken/membership.json holds"):
        find_head("10.0.0.2:7411", environment)


def test_a_token_need_not_stand_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where everybody on the machine can read it."""
    redeemed = []

    def login(environment: object, head: str, token: str, name: str, user: str) -> Context:
        redeemed.append(token.strip())
        return Context(name, Membership(tmp_path))

    monkeypatch.setattr(contexts, "login", login)
    file = tmp_path / "token"
    file.write_text("of-a-file\n")
    run = CliRunner().invoke
    for words, stdin in (
        (["word"], ""),
        (["--token-file", str(file)], ""),
        (["--token-file", "-"], "of-stdin\n"),
    ):
        assert run(app, ["login", "lab:7411", *words], input=stdin).exit_code == 0
    assert redeemed == ["word", "of-a-file", "of-stdin"]
    for words, why in (
        ([], "either as TOKEN or in --token-file"),
        (["word", "--token-file", str(file)], "either as TOKEN or in --token-file"),
        (["--token-file", str(tmp_path / "none")], "cannot be read: No such file"),
    ):
        result = run(app, ["login", "lab:7411", *words])
        assert result.exit_code == ExitCode.USAGE
        assert why in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("owners", "wide", "told"),
    [(["ann", "ann"], False, False), (["ann", "bob"], False, True), (["ann"], True, True)],
)
def test_owners_of_studies_are_told_where_there_are_several(
    owners: list[str], wide: bool, told: bool
) -> None:
    studies = [record(Study, pb.Study(id=f"s{i}", owner=o)) for i, o in enumerate(owners)]
    table = shown(studies_table(studies, wide=wide), 200)
    assert ("owner" in table, "ann" in table) == (told, told)


def test_a_device_that_another_has_is_not_shown_as_idle() -> None:
    device = types.Device(id="box/0", node="box", kind="cpu")
    status = pb.DeviceStatus(device=device, healthy=True, others=True)
    node = record(Node, pb.Node(id="box", connected=True, draining=True, devices=[status]))
    assert "of another user" in shown(devices_table(node.devices))
    assert "1/1" in shown(nodes_table([node], wide=False))
    assert not node.drained


def test_an_unknown_role_is_refused_with_those_that_there_are() -> None:
    result = CliRunner().invoke(app, ["user", "token", "eve", "--role", "king"])
    assert result.exit_code == 2
    assert "operator" in result.output
