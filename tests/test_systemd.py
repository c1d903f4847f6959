"""The units in systemd/ are accepted by systemd without a word, and are as closed as promised."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest

from hermesd.node.head_link import read_token

SYSTEMD = Path(__file__).resolve().parent.parent / "systemd"
UNITS = ["hermesd-head.service", "hermesd-node.service"]
# As systemd 252 counts.
EXPOSURE_LIMIT = {"hermesd-head.service": 1.2, "hermesd-node.service": 2.4}
EXPOSURE_LIMIT_OF_A_ROOT = 3.5

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze here"
)


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", "--no-pager", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C", "SYSTEMD_COLORS": "0"},
    )


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units with a program that exists, since verify looks for it on this machine."""
    for name in UNITS:
        text = (SYSTEMD / name).read_text()
        assert "ExecStart=/opt/hermes/bin/hermesd " in text
        (tmp_path / name).write_text(text.replace("/opt/hermes/bin/hermesd", sys.executable))
    return tmp_path


@needs_systemd
def test_systemd_has_nothing_to_say_about_the_units(units: Path) -> None:
    done = analyze("verify", *(str(units / name) for name in UNITS))
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


@needs_systemd
def test_verify_would_name_an_unknown_setting(units: Path) -> None:
    unit = units / UNITS[0]
    unit.write_text(unit.read_text().replace("[Install]", "NoSuchSetting=yes\n[Install]"))
    assert "NoSuchSetting" in analyze("verify", str(unit)).stderr


@needs_systemd
@pytest.mark.parametrize("name", UNITS)
def test_the_exposure_stays_below_its_limit(units: Path, name: str) -> None:
    threshold = round(EXPOSURE_LIMIT[name] * 10)
    done = analyze("security", "--offline=true", f"--threshold={threshold}", str(units / name))
    assert done.returncode == 0, done.stdout


@needs_systemd
def test_a_node_that_runs_programs_as_their_users_is_a_root_with_few_rights(units: Path) -> None:
    drop_ins = units / "hermesd-node.service.d"
    drop_ins.mkdir()
    shutil.copy(SYSTEMD / "hermesd-node-accounts.conf", drop_ins / "accounts.conf")
    done = analyze("verify", str(units / "hermesd-node.service"))
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    threshold = round(EXPOSURE_LIMIT_OF_A_ROOT * 10)
    arguments = ("--offline=true", f"--threshold={threshold}", str(units / UNITS[1]))
    with_it = analyze("security", *arguments)
    assert with_it.returncode == 0, with_it.stdout


@pytest.mark.parametrize("name", UNITS)
def test_the_daemons_tell_systemd_when_they_are_ready(name: str) -> None:
    assert service(name)["Type"] == "notify"


@pytest.mark.parametrize("name", UNITS)
def test_a_daemon_that_stands_still_is_ended_and_one_that_cannot_start_is_tried_on(
    name: str,
) -> None:
    assert int(service(name)["WatchdogSec"]) == 60
    assert service(name)["Restart"] == "on-failure"
    assert "\nStartLimitIntervalSec=0\n" in (SYSTEMD / name).read_text().split("[Service]")[0]


def test_trials_outlive_the_node_daemon() -> None:
    node = service("hermesd-node.service")
    assert node["KillMode"] == "process"
    assert node["RuntimeDirectoryPreserve"] == "yes"
    assert "PrivateTmp" not in node
    assert node["Delegate"] == "yes"


def test_the_node_is_handed_the_token_that_the_head_makes(tmp_path: Path) -> None:
    sample = tomllib.loads((SYSTEMD / "hermesd.toml.example").read_text())
    node = service("hermesd-node.service")
    name, _, path = node["LoadCredential"].partition(":")
    assert path == f"{sample['head']['state_dir']}/node-token"
    assert f"Environment=HERMES_NODE_TOKEN_FILE=%d/{name}\n" in (SYSTEMD / UNITS[1]).read_text()
    other, _, stand_in = node["SetCredential"].partition(":")
    (tmp_path / "token").write_text(stand_in)  # where there is no head, it is no reason to stop
    assert (other, read_token(tmp_path / "token").token) == (name, None)
    assert (
        "hermesd-head.service" in (SYSTEMD / UNITS[1]).read_text().split("After=")[1].split("\n")[0]
    )


def test_the_recipe_makes_what_the_units_name() -> None:
    """What `make -n` would do: its paths are those of the units and of the sample."""
    recipe = subprocess.run(
        ["make", "--silent", "--dry-run", "install-systemd"],
        cwd=SYSTEMD.parent, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    head, node = service("hermesd-head.service"), service("hermesd-node.service")
    program, *_, config = head["ExecStart"].split()
    assert f"-m venv {Path(program).parents[1]}" in recipe
    assert f"hermesd.toml.example {config}" in recipe
    folder = f"/var/lib/{node['StateDirectory']}"
    assert f"install -d -o {node['User']} -g {node['Group']} -m 700 {folder}" in recipe
    assert "systemctl daemon-reload" in recipe
    assert not re.search(r"systemctl (re|try-re)?start", recipe), "trials and people come first"


def test_the_sample_configuration_uses_the_directories_that_the_units_make() -> None:
    sample = tomllib.loads((SYSTEMD / "hermesd.toml.example").read_text())
    head, node = service("hermesd-head.service"), service("hermesd-node.service")
    assert sample["head"]["state_dir"] == f"/var/lib/{head['StateDirectory']}"
    assert sample["head"]["socket"] == f"/run/{head['RuntimeDirectory']}/head.sock"
    assert sample["node"]["head"] == f"unix:{sample['head']['socket']}"
    assert sample["node"]["state_dir"] == f"/var/lib/{node['StateDirectory']}"
    assert sample["node"]["runtime_dir"] == f"/run/{node['RuntimeDirectory']}"


# Those that make systemd put a filter of system calls on a service (systemd.exec(5)).
FILTERING = [
    "LockPersonality",
    "MemoryDenyWriteExecute",
    "PrivateDevices",
    "ProtectClock",
    "ProtectHostname",
    "ProtectKernelLogs",
    "ProtectKernelModules",
    "ProtectKernelTunables",
    "RestrictAddressFamilies",
    "RestrictNamespaces",
    "RestrictRealtime",
    "RestrictSUIDSGID",
    "SystemCallArchitectures",
    "SystemCallFilter",
    "SystemCallLog",
]


def test_the_drop_in_for_images_leaves_no_filter_and_opens_nothing_else() -> None:
    """CRIU without privileges cannot stop a process on which there is one."""
    node, drop_in = service("hermesd-node.service"), service("hermesd-node-images.conf")
    assert set(drop_in) == set(node).intersection(FILTERING)
    assert set(drop_in.values()) == {"no", ""}


@needs_systemd
def test_systemd_has_nothing_to_say_about_the_drop_in(units: Path) -> None:
    (units / f"{UNITS[1]}.d").mkdir()
    shutil.copy(SYSTEMD / "hermesd-node-images.conf", units / f"{UNITS[1]}.d" / "images.conf")
    done = analyze("verify", str(units / UNITS[1]))
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def service(name: str) -> dict[str, str]:
    """The [Service] settings of a unit; of a repeated one, the last."""
    parser = ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(SYSTEMD / name)
    return dict(parser["Service"])
