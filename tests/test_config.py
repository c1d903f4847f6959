"""Settings come from a file, the environment and flags, and every bad one is named."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from hermesctl.address import state_directory
from hermesd.config import HeadConfig
from hermesd.settings import ConfigError, load_head, load_node

EXAMPLE = Path(__file__).resolve().parent.parent / "systemd" / "hermesd.toml.example"
CORE = min(os.sched_getaffinity(0))


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "hermesd.toml"
        path.write_text(text)
        return path

    return write


def test_nothing_said_gives_one_slot_for_each_usable_core() -> None:
    config = load_node(None, {}, {})
    assert config.cpu_slots == tuple((core,) for core in sorted(os.sched_getaffinity(0)))
    assert config.gpus
    assert not config.embedded
    assert config.parked_memory_bytes > 0


def test_flags_override_the_environment_and_that_the_file(write) -> None:
    path = write('[node]\nname = "file"\ngpus = true\ndisk_budget_bytes = "2GiB"\n')
    environ = {"HERMES_NODE_NAME": "env", "HERMES_NODE_GPUS": "false", "HERMES_HEAD_LISTEN": "x"}
    config = load_node(path, environ, {"name": "flag", "head": None})
    assert (config.name, config.gpus, config.disk_budget_bytes) == ("flag", False, 2 * 2**30)


@pytest.mark.parametrize(
    ("written", "slots"),
    [
        ("2", 2),
        (f"[[{CORE}], [{CORE}], [{CORE}]]", 3),
        ("0", 0),
        ("[]", 0),
    ],
)
def test_cpu_slots_are_a_number_or_lists_of_cores(write, written: str, slots: int) -> None:
    assert len(load_node(write(f"[node]\ncpu_slots = {written}\n"), {}, {}).cpu_slots) == slots
    assert len(load_node(None, {"HERMES_NODE_CPU_SLOTS": written}, {}).cpu_slots) == slots


def test_a_relative_path_is_one_of_where_the_daemon_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_node(None, {}, {"state_dir": Path("n")}).runtime_path == tmp_path / "n" / "run"
    assert load_head(None, {"HERMES_HEAD_SOCKET": "h.sock"}, {}).socket == tmp_path / "h.sock"


def test_both_sides_look_in_the_same_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, place in (("HERMES_STATE", tmp_path), ("XDG_STATE_HOME", tmp_path / "hermes")):
        monkeypatch.delenv("HERMES_STATE", raising=False)
        monkeypatch.setenv(variable, str(tmp_path))
        head, node = load_head(None, {}, {}), load_node(None, {}, {})
        assert node.head == f"unix:{head.socket_path}"
        assert node.token_path == place / "head" / "node-token"
        assert state_directory(os.environ) == place


def test_a_token_is_looked_for_beside_a_socket_alone(tmp_path: Path) -> None:
    assert load_node(None, {}, {"head": "unix:/run/h.sock"}).token_path == Path("/run/node-token")
    assert load_node(None, {}, {"head": "127.0.0.1:1"}).token_path is None
    assert load_node(None, {}, {"embedded": True}).token_path is None
    named = load_node(None, {"HERMES_NODE_TOKEN_FILE": str(tmp_path)}, {})
    assert named.token_path == tmp_path


def test_the_example_for_system_daemons_is_valid() -> None:
    head = load_head(EXAMPLE, {}, {})
    assert head.socket_path == Path("/run/hermes/head.sock")


def test_what_the_example_has_commented_out_is_valid_too(write) -> None:
    settings = re.sub(r"^# (?=\w+ = )", "", EXAMPLE.read_text(), flags=re.MULTILINE)
    assert settings != EXAMPLE.read_text()
    assert load_head(write(settings), {}, {}).listen == "10.0.0.1:7411"
    assert load_node(write(settings), {}, {"head": "10.0.0.1:7411"}).tls


def test_the_socket_lies_in_the_state_unless_it_is_named(tmp_path: Path) -> None:
    assert HeadConfig(state_dir=tmp_path).socket_path == tmp_path / "head.sock"
    assert HeadConfig(state_dir=tmp_path, socket=tmp_path / "s").socket_path == tmp_path / "s"


BAD_FILES = [
    ("[head]\nlistn = 'x'\n", r"hermesd.toml: head\.listn = unknown key: .*mean listen\?"),
    ("[haed]\n", r"hermesd.toml: haed: expected the tables \[head\] and \[node\].*mean head\?"),
    ("head = 3\n", r"head: expected the tables"),
    ("[head\n", r"hermesd.toml: is not TOML"),
    ("[head]\nlisten = '7411'\n", r"head\.listen = 7411: expected host:port"),
    ("[head]\nlisten = 'h:99999'\n", r"head\.listen = h:99999: expected host:port"),
    ("[head]\nlisten = 3\n", r"head\.listen = 3: expected a valid string"),
    ("[head]\nmetrics_port = 0\n", r"head\.metrics_port = 0: expected greater than or equal to 1"),
    ("[head]\nblob_limit_bytes = '5 GB'\n", r"blob_limit_bytes = 5 GB: .*such as 512MiB"),
    ("[head]\nblob_limit_bytes = -1\n", r"blob_limit_bytes = -1: expected greater than"),
    ("[head]\ntls_key = '/k'\n", r"all three or none"),
    (
        "[head]\nembedded = true\nlisten = '127.0.0.1:7411'\n",
        r"head: expected not embedded and listen together: an embedded head asks nobody",
    ),
]


@pytest.mark.parametrize(("text", "message"), BAD_FILES)
def test_what_is_wrong_in_the_heads_table_is_named(write, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_head(write(text), {}, {})


BAD_NODES = [
    ("name = 'Big Box'", r"node\.name = Big Box: expected 1 to 63 of a-z"),
    ("name = ''", r"node\.name: expected 1 to 63"),
    ("cpu_slots = [[99999]]", r"node\.cpu_slots = .*expected lists of cores out of"),
    ("cpu_slots = [[]]", r"node\.cpu_slots = .*none of them empty"),
    ("cpu_slots = -1", r"node\.cpu_slots = -1: expected from 0 to 4096 slots"),
    ("cpu_slots = 'two'", r"node\.cpu_slots = two: expected a number of slots"),
    ("head = 'somewhere'", r"node\.head = somewhere: expected host:port"),
    ("gpus = 'perhaps'", r"node\.gpus = perhaps: expected a valid boolean"),
]


@pytest.mark.parametrize(("text", "message"), BAD_NODES)
def test_what_is_wrong_in_the_nodes_table_is_named(write, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_node(write(f"[node]\n{text}\n"), {}, {})


@pytest.mark.parametrize("head", ["10.1.2.3:7411", "head.lab:7411", "0.0.0.0:1", "ipv4:10.1.2.3:7"])
def test_a_node_sends_its_token_beyond_this_machine_by_tls_alone(write, head: str) -> None:
    with pytest.raises(
        ConfigError, match=f"expected head = {head} only once it is joined .*, or with tls_cert"
    ):
        load_node(write(f"[node]\nhead = '{head}'\ntoken_file = '/t'\n"), {}, {})
    tls = {f"tls_{name}": f"/{name}" for name in ("certificate", "key", "ca")}
    assert load_node(None, {}, {"head": head, **tls}).tls


@pytest.mark.parametrize(
    "head", ["unix:/h.sock", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1"]
)
def test_a_node_needs_no_tls_on_its_own_machine(head: str) -> None:
    assert not load_node(None, {}, {"head": head}).tls


def test_every_error_is_told_at_once(write) -> None:
    with pytest.raises(ConfigError) as caught:
        load_head(write("[head]\nlisten = 1\nmetrics_port = 'x'\nnothing = 1\n"), {}, {})
    assert len(str(caught.value).splitlines()) == 3


def test_an_error_names_where_the_value_came_from(write) -> None:
    with pytest.raises(ConfigError, match=r"^environment: HERMES_HEAD_METRICS_PORT: head\.metri"):
        load_head(None, {"HERMES_HEAD_METRICS_PORT": "none"}, {})
    with pytest.raises(ConfigError, match=r"^--listen: head\.listen = x"):
        load_head(write("[head]\nlisten = 'a:1'\n"), {}, {"listen": "x"})
    with pytest.raises(ConfigError, match=r"^environment: HERMES_HEAD_LISTN: .*HERMES_HEAD_LIST"):
        load_head(None, {"HERMES_HEAD_LISTN": "a:1"}, {})
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_head(Path("/nowhere/hermesd.toml"), {}, {})
