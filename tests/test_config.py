"""Settings come from a file, the environment and flags, and every bad one is named."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from hermesctl.sdk.address import state_directory
from hermesd.config.pools import configured
from hermesd.config.schema import HeadConfig, UserTerms
from hermesd.config.slots import SlotSetting
from hermesd.config.sources import ConfigError, load_head, load_node
from hermesd.core.model import Plugin, Pool
from hermesd.policy import make_policy
from hermesd.policy.published.asha import Asha

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
    assert config.cpu_slots == tuple(
        SlotSetting((core,)) for core in sorted(os.sched_getaffinity(0))
    )
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


@pytest.mark.parametrize(
    ("written", "cores", "said"),
    [
        ("70", 2, r'each of 2 cores; "70%" for a slot of 70 % of a core, or "70 slots"'),
        ("10", 8, r'each of 8 cores; "10%" for'),
        ("70", 64, r'each of 64 cores; "70%" for'),
        ("200", 2, r'each of 2 cores; "200 slots"'),
        ("'5000 slots'", 2, "from 0 to 4096 slots"),
    ],
)
def test_a_number_of_slots_that_may_be_meant_as_a_percentage_is_refused(
    write, monkeypatch: pytest.MonkeyPatch, written: str, cores: int, said: str
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    with pytest.raises(ConfigError, match=rf"node\.cpu_slots = .*{said}"):
        load_node(write(f"[node]\ncpu_slots = {written}\n"), {}, {})


@pytest.mark.parametrize(
    ("said", "cores", "slots"),
    [("9", 2, 9), ("64", 64, 64), ("70 slots", 2, 70), ("1 slot", 2, 1), ("0 slots", 2, 0)],
)
def test_what_is_spelt_out_is_meant(
    write, monkeypatch: pytest.MonkeyPatch, said: str, cores: int, slots: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    given = load_node(None, {}, {"cpu_slots": said}).cpu_slots
    assert len(given) == slots
    assert {slot.percent for slot in given} <= {100}
    assert load_node(write(f"[node]\ncpu_slots = '{said}'\n"), {}, {}).cpu_slots == given


def test_shares_of_cores_are_placed_where_they_fit(write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    slots = (SlotSetting((1,), 40), SlotSetting((0,), 80), SlotSetting((1,), 56))
    written = '["40%", "80%", "56%"]'
    assert load_node(write(f"[node]\ncpu_slots = {written}\n"), {}, {}).cpu_slots == slots
    assert load_node(None, {"HERMES_NODE_CPU_SLOTS": written}, {}).cpu_slots == slots
    assert load_node(None, {}, {"cpu_slots": "40%,80%, 56 %"}).cpu_slots == slots
    beside = load_node(write('[node]\ncpu_slots = [[0], "70%"]\n'), {}, {}).cpu_slots
    assert beside == (SlotSetting((0,)), SlotSetting((1,), 70))


def test_shares_that_no_core_has_left_are_refused_with_some_that_fit(
    write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    with pytest.raises(ConfigError) as refused:
        load_node(None, {}, {"cpu_slots": "100%,70%,50%"})
    assert "--slots: node.cpu_slots = 100%,70%,50%: expected shares" in str(refused.value)
    assert "for example 84%, 58%, 42%" in str(refused.value)
    with pytest.raises(ConfigError, match=r"the cores \[0, 1\], each at most 100 % in all"):
        load_node(write('[node]\ncpu_slots = [[0, 1], "1%"]\n'), {}, {})


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


def test_a_node_that_has_joined_shows_no_token_or_its_certificate_could_not_be_revoked(
    tmp_path: Path,
) -> None:
    (tmp_path / "membership").mkdir()
    about = {"head": "10.0.0.1:7411", "role": "node", "name": "box"}
    (tmp_path / "membership" / "membership.json").write_text(json.dumps(about))
    handed = {"HERMES_NODE_TOKEN_FILE": str(tmp_path / "token")}
    node = load_node(None, handed, {"state_dir": tmp_path})
    assert (node.head, node.token_path) == ("10.0.0.1:7411", None)
    elsewhere = load_node(None, handed, {"state_dir": tmp_path, "head": "unix:/run/h.sock"})
    assert elsewhere.token_path == tmp_path / "token"


def test_the_example_for_system_daemons_is_valid() -> None:
    head = load_head(EXAMPLE, {}, {})
    assert head.socket_path == Path("/run/hermes/head.sock")


def test_what_the_example_has_commented_out_is_valid_too(write) -> None:
    settings = re.sub(r"^# (?=\w+ = |\[)", "", EXAMPLE.read_text(), flags=re.MULTILINE)
    assert settings != EXAMPLE.read_text()
    assert load_head(write(settings), {}, {}).listen == "10.0.0.1:7411"
    assert list(load_head(write(settings), {}, {}).pools) == ["gold"]
    assert load_node(write(settings), {}, {"head": "10.0.0.1:7411"}).tls


def test_users_have_tables_of_their_own_that_a_node_passes_over(write) -> None:
    path = write(
        """
        [fair_share]
        half_life_hours = 2
        [users.alice]
        weight = 3
        max_devices = 4
        max_studies = 200
        [users."b.ob"]
        max_unfinished_trials = 0
        """
    )
    head = load_head(path, {}, {})
    assert head.fair_share.half_life_hours == 2
    assert head.users["alice"] == UserTerms(weight=3, max_devices=4, max_studies=200)
    assert head.users["b.ob"] == UserTerms(max_unfinished_trials=0)
    assert load_node(path, {}, {})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[users.alice]\nwieght = 2", "users.alice.wieght = unknown key: expected one of"),
        ("[users.alice]\nwieght = 2", "did you mean weight?"),
        ("[users.alice]\nweight = 0", "users.alice.weight = 0: expected"),
        ("[users.alice]\nmax_devices = -1", "users.alice.max_devices = -1: expected"),
        ("[users]\nalice = 3", "users.alice = 3: expected"),
        ("[fair_share]\nhalf_life = 3", "did you mean half_life_hours?"),
        ("[fair_share]\nhalf_life_hours = 0", "fair_share.half_life_hours = 0: expected"),
        ("[user.alice]\nweight = 1", "did you mean users?"),
        ("[head.users.alice]\nweight = 1", "head.users: expected a table [users] of its own"),
    ],
)
def test_terms_that_will_not_do_are_named(write, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_head(write(text), {}, {})
    assert words in str(refused.value)
    assert "hermesd.toml: " in str(refused.value)


def test_no_variable_of_the_environment_sets_terms() -> None:
    with pytest.raises(ConfigError, match="HERMES_HEAD_USERS: expected"):
        load_head(None, {"HERMES_HEAD_USERS": "{}"}, {})


def test_the_socket_lies_in_the_state_unless_it_is_named(tmp_path: Path) -> None:
    assert HeadConfig(state_dir=tmp_path).socket_path == tmp_path / "head.sock"
    assert HeadConfig(state_dir=tmp_path, socket=tmp_path / "s").socket_path == tmp_path / "s"


BAD_FILES = [
    ("[head]\nlistn = 'x'\n", r"hermesd.toml: head\.listn = unknown key: .*mean listen\?"),
    ("[haed]\n", r"hermesd.toml: haed: expected the tables \[head\], \[node\].*mean head\?"),
    ("head = 3\n", r"head: expected the tables"),
    ("[pool.gold]\n", r"pool: expected the tables .*mean pools\?"),
    ("[pools]\ngold = 3\n", r"hermesd.toml: pools\.gold = 3: expected a table"),
    ("[head]\npools = {}\n", r"head\.pools: expected a table \[pools\] of its own"),
    ("[pools.gold]\nnods = ['n']\n", r"toml: pools\.gold\.nods = unknown key: .*mean nodes\?"),
    ("[pools.gold]\n", r"pools: expected nodes in gold: names, or patterns"),
    ("[pools.Gold]\nnodes = ['n']\n", r"pools: expected a name of a-z.*, not Gold"),
    ("[pools.gold]\nnodes = ['a b']\n", r"pools\.gold\.nodes\.0 = a b: expected the name of a"),
    ("[pools.default]\nnodes = ['n']\n", r"pools: expected no nodes in default: it has all"),
    (
        "[pools.gold]\nnodes = ['n']\npolicy = {name = 'best_first', target = -inf}\n",
        r"pools\.gold\.policy: expected a finite number for target, not -inf",
    ),
    (
        "[pools.gold]\nnodes = ['n']\n[pools.red]\nnodes = ['m', 'n']\n",
        r"pools: expected n in one pool, not in gold and red",
    ),
    (
        "[pools.gold]\nnodes = ['n']\npolicy = 'herms'\n",
        r"pools\.gold\.policy = herms: expected one of .*mean hermes\?",
    ),
    (
        "[pools.gold]\nnodes = ['n']\npolicy = 'asha:eta'\n",
        r"pools\.gold\.policy = asha:eta: expected setting=value, not eta",
    ),
    (
        "[pools.gold]\nnodes = ['n']\npolicy = 'fifo:placement=homes'\n",
        r"expected a policy; the pool's `placement` is a key of its own",
    ),
    (
        "[pools.gold]\nnodes = ['n']\npolicy = {name = 'hermes', quantum_second = 1}\n",
        r"pools\.gold\.policy: expected one of .* for policy\.hermes, not quantum_second ",
    ),
    (
        "[pools.gold]\nnodes = ['n']\nplacement = {G_thres = 2}\n",
        r"pools\.gold\.placement: expected a name, or a table of the `name` and its settings",
    ),
    ("[head\n", r"hermesd.toml: is not TOML"),
    ("[head]\nlisten = '7411'\n", r"head\.listen = 7411: expected host:port"),
    ("[head]\nenroll = 7412\n", r"head\.enroll = 7412: expected host:port, for example"),
    ("[head]\nlisten = 'h:99999'\n", r"head\.listen = h:99999: expected host:port"),
    ("[head]\nmetrics_port = 0\n", r"head\.metrics_port = 0: expected 1 or more"),
    ("[head]\nblob_limit_bytes = '5 GB'\n", r"blob_limit_bytes = 5 GB: .*such as 512MiB"),
    ("[head]\nblob_limit_bytes = -1\n", r"blob_limit_bytes = -1: expected 0 or more"),
    ("[head]\ntls_key = '/k'\n", r"all three or none"),
    (
        "[head]\nembedded = true\nlisten = '127.0.0.1:7411'\n",
        r"head: expected either embedded or listen, not both: an embedded head asks nobody",
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
    ("cpu_slots = ['0%']", r"node\.cpu_slots = .*shares of a core from 1% to 100%, not 0%"),
    ("cpu_slots = ['half']", r"node\.cpu_slots = .*shares of a core from 1% to 100%, not half"),
    ("cpu_slots = 'two'", r"node\.cpu_slots = two: expected a number of slots"),
    ("head = 'somewhere'", r"node\.head = somewhere: expected host:port"),
    ("gpus = 'perhaps'", r"node\.gpus = perhaps: expected a valid boolean"),
    ("hours = ['Mo-Fr']", r"node\.hours.*: expected days, hours or both, .*, not 'Mo-Fr'"),
    ("hours = []", r"node\.hours.*: expected at least one entry such as"),
    ("visible_gpus = ''", r"node\.visible_gpus: expected a list such as \[0, 1\]"),
    ("visible_gpus = 1", r"node\.visible_gpus = 1: expected a list such as"),
    ("at_stop = 'leave'", r"node\.at_stop = leave: expected 'keep', 'end' or 'part'"),
    ("hours = 7", r"node\.hours = 7: expected a list such as"),
]


@pytest.mark.parametrize(("text", "message"), BAD_NODES)
def test_what_is_wrong_in_the_nodes_table_is_named(write, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_node(write(f"[node]\n{text}\n"), {}, {})


@pytest.mark.parametrize("head", ["10.1.2.3:7411", "head.lab:7411", "0.0.0.0:1", "ipv4:10.1.2.3:7"])
def test_a_node_sends_its_token_beyond_this_machine_by_tls_alone(write, head: str) -> None:
    with pytest.raises(
        ConfigError,
        match=f"or tls_certificate, .* beside head = {head}, or a node that has joined it",
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


def test_a_pool_has_the_settings_of_its_policy_in_one_line_as_well(write) -> None:
    path = write(
        "[pools.gold]\nnodes = ['n']\npolicy = 'asha:eta=2,min_rung=1/27'\n"
        "[pools.default]\npolicy = {name = 'asha', eta = 2, min_rung = '1/27'}\n"
    )
    gold, default = configured(load_head(path, {}, {}).pools)
    assert gold.policy is not None
    assert default.policy is not None
    assert make_policy(gold.policy) == make_policy(default.policy) == Asha(2, 1 / 27)


def test_pools_come_with_the_policy_and_the_placement_that_they_name(write) -> None:
    path = write(
        "[pools.gold]\nnodes = ['a100-*', 'box']\nplacement = 'homes'\n"
        "private = true\n"
        "policy = {name = 'hermes', quantum_seconds = 20, milestones = [50, 75]}\n"
        "[pools.default]\npolicy = 'fifo'\n"
    )
    hermes = Plugin("hermes", (("quantum_seconds", 20), ("milestones", (50, 75))))
    assert configured(load_head(path, {}, {}).pools) == (
        Pool("gold", ("a100-*", "box"), hermes, Plugin("homes"), private=True),
        Pool("default", (), Plugin("fifo"), None),
    )
    load_node(path, {}, {})


def test_hours_are_a_list_or_text_with_commas(write) -> None:
    path = write("[node]\nhours = ['Mon-Fri 19:00-07:00', 'Sat-Sun']\n")
    environ = {"HERMES_NODE_HOURS": "Mon-Fri 19:00-07:00, Sat-Sun"}
    hours = [load_node(path, {}, {}).hours, load_node(None, environ, {}).hours]
    assert [str(each) for each in hours] == ["Mon-Fri 19:00-07:00, Sat-Sun"] * 2
    assert load_node(None, {}, {}).hours is None


def test_gpus_are_named_as_a_batch_system_names_them(write) -> None:
    assert load_node(None, {}, {}).visible_gpus is None
    assert load_node(None, {"HERMES_NODE_VISIBLE_GPUS": "0,2"}, {}).visible_gpus == ("0", "2")
    assert load_node(write("[node]\nvisible_gpus = [0, 'GPU-1']\n"), {}, {}).visible_gpus == (
        "0",
        "GPU-1",
    )


def test_trials_outlive_the_daemon_but_for_ones_own_or_where_it_is_said(write) -> None:
    assert load_node(None, {}, {}).stops_by == "keep"
    assert load_node(None, {}, {"embedded": True}).stops_by == "end"
    assert load_node(write("[node]\nat_stop = 'end'\n"), {}, {}).stops_by == "end"


def test_a_machine_that_is_shared_yields_its_gpus_and_ones_own_does_not(write) -> None:
    assert load_node(None, {}, {}).yields_gpus
    assert not load_node(None, {}, {"embedded": True}).yields_gpus
    assert load_node(write("[node]\nyield_gpus = true\n"), {}, {"embedded": True}).yields_gpus
