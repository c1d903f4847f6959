"""The same for an ordinary user, whose programs a node daemon of root's runs as theirs."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from hermesd.node.runner.cleanup import forget_names
from hermesd.node.storage.trial_folder import TrialFolder
from tests.images.driving import (
    NOBODY,
    Failing,
    InNoWorld,
    Theirs,
    begun,
    criu,
    files_in,
    give,
    lay_out,
    make_capable,
    missing,
    started_as_theirs,
    suspended_again_and_again,
    undisturbed,
    wait_for_more,
)
from tests.images.programs import PROGRAMS, Program, python
from tests.trainer_shim.driving import ROOT
from tests.waiting import until

# One that others than root may start, and that is what `make test` runs by.
PYTHON = "/usr/bin/python3"

pytestmark = [pytest.mark.root, pytest.mark.image]


def _capable(program: Program, folder: Path, tool: str) -> Theirs:
    """A trial in no world, whose CRIU has the capabilities that `setcap` would give."""
    trial = _theirs(program, folder, str(folder / "capable"), kind=InNoWorld)
    if not make_capable(tool, folder / "capable"):
        pytest.skip("no CRIU here")
    return trial


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder of that user's with the shim, and a CRIU."""
    tool = criu(tmp_path)
    folder = Path(tempfile.mkdtemp(prefix="hermes-"))
    shutil.copytree(ROOT / "trainer_shim", folder / "shim" / "trainer_shim")
    yield folder, tool
    shutil.rmtree(folder)


def _theirs(
    program: Program, folder: Path, tool: str, *words: str, kind: type[Theirs] = Theirs
) -> Theirs:
    if not Path(PYTHON).exists() or (lacks := missing(program)):
        pytest.skip(f"no {lacks or PYTHON} here")
    named = [word.format(python=PYTHON) for word in program.argv]
    trial = kind(folder / "t", [*named, *words], criu=tool)
    trial.python, trial.shim = PYTHON, folder / "shim"
    lay_out(program, trial.directory / "work")
    give(folder)
    return trial


def _is_as_undisturbed(trial: Theirs, name: str, tmp_path: Path) -> None:
    output, files = undisturbed(PROGRAMS[name], tmp_path / "plain")
    suspended_again_and_again(trial, len(output))
    assert trial.output == output
    assert files_in(trial.directory / "work") == files


def test_a_file_that_may_not_be_read_hides_no_database(tmp_path: Path) -> None:
    program = """
import os, sqlite3
from trainer_shim.host import image
log = open("log", "w")
os.chmod("log", 0o200)
database = sqlite3.connect("found.db")
database.execute("create table points (x)")
print(*image._databases(os.getpid()))
"""
    with tempfile.TemporaryDirectory(prefix="hermes-") as name:
        folder = Path(name)
        shutil.copytree(ROOT / "trainer_shim", folder / "trainer_shim")
        give(folder)
        done = subprocess.run(
            [PYTHON, "-c", program], cwd=folder, env={"PYTHONPATH": name}, user=NOBODY,
            group=NOBODY, extra_groups=[], stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.split() == [str(folder / "found.db")]


@pytest.mark.parametrize(
    "name",
    [
        "generator",
        "many threads",
        "sqlite",
        "subprocess",
        "deleted open file",
        "temporary files",
        "temporary socket",
        "shell",
        "c",
        "pool of processes",
        "shared array",
        "memory file",
    ],
)
def test_an_ordinary_user_needs_no_privileges(
    name: str, place: tuple[Path, str], tmp_path: Path
) -> None:
    trial = _theirs(PROGRAMS[name], *place)
    _is_as_undisturbed(trial, name, tmp_path)


@pytest.mark.parametrize("name", ["many threads", "deleted open file", "temporary files"])
def test_where_there_are_no_namespaces_two_capabilities_of_criu_do(
    name: str, place: tuple[Path, str], tmp_path: Path
) -> None:
    trial = _capable(PROGRAMS[name], *place)
    _is_as_undisturbed(trial, name, tmp_path)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _given_names() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if name.startswith("hermes-mapped-")}


@pytest.mark.parametrize("is_the_next_host", [True, False])
def test_no_name_is_left_of_memory_whose_host_was_killed(
    place: tuple[Path, str], is_the_next_host: bool
) -> None:
    """The next host of the trial takes it away, or the node daemon, once all of it is gone."""
    before = _given_names()
    capable = place[0] / "capable"
    if not make_capable(place[1], capable):
        pytest.skip("no CRIU here")
    failing = Failing(place[0], str(capable))
    trial = _theirs(PROGRAMS["shared array"], place[0], str(failing.path), kind=InNoWorld)
    trial.launch()
    try:
        begun(trial)
        failing.does(f"echo $$ > {trial.directory}/pid; exec sleep infinity")
        trial.suspend("checkpoint")
        until(lambda: _text(trial.directory / "pid").endswith("\n"))
        assert _given_names() - before
    finally:
        # Who writes it, and what the program has started: no world takes them along.
        left = psutil.Process(trial.pid).children(recursive=True)
        trial.end()
        for each in left:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(left)
    assert _given_names() - before, "it was killed"
    folder = TrialFolder(trial.directory.parent, place[0], "t/1")
    folder.checkpoints = Path(trial.checkpoints)
    if is_the_next_host:
        trial.launch()
        trial.end()
    else:
        forget_names(folder)
    assert _given_names() == before


def test_by_capabilities_a_program_sees_its_own_user(place: tuple[Path, str]) -> None:
    source = """
import os
while True:
    print(os.getuid(), os.getpid(), flush=True); rest()
"""
    trial = _capable(python(source), *place)
    try:
        path = _suspended(trial)
        before = trial.output
        trial.end()
        trial.launch()
        trial.start(restore=path)
        assert _printed_since(trial, before) == before.splitlines()[0]
    finally:
        trial.end()
    assert before.split()[0] == str(NOBODY)


def test_a_trial_has_shared_memory_of_its_own(place: tuple[Path, str]) -> None:
    trial = _theirs(python("import os; print(os.listdir('/dev/shm'))"), *place)
    stranger = Path("/dev/shm", trial.directory.parent.name)
    stranger.touch()
    try:
        trial.launch()
        trial.start()
        trial.until("completed")
        trial.quit()
    finally:
        trial.end()
        stranger.unlink()
    assert trial.output == "[]\n"


def test_the_clock_that_only_measures_does_not_count_the_time_away(
    place: tuple[Path, str],
) -> None:
    source = """
import time
begun = time.time() - time.monotonic()
while True:
    print(time.time() - time.monotonic() - begun, flush=True); time.sleep(0.02)
"""
    trial = _theirs(python(source), *place)
    try:
        path = _suspended(trial)
        before = trial.output
        trial.end()
        trial.launch()
        trial.start(restore=path)
        since = _printed_since(trial, before)
    finally:
        trial.end()
    assert all(abs(float(line)) < 0.01 for line in before.split())
    assert float(since) > 0.05  # a host was started meanwhile


# What root's own image is worth to a user who gets hold of one: the memory of a process that had
# every right, told to use them again and again.
GREEDY = """
import json, os, socket, sys, time
secret, keeps = sys.argv[1], open(sys.argv[1]) if sys.argv[2] == "open" else None
def tell(attempt):
    try:
        attempt()
    except OSError as error:
        return error.strerror
    return "done"
while True:
    told = {
        "read": tell(lambda: open(secret)), "written": tell(lambda: open(secret, "a")),
        "given": tell(lambda: os.chown(sys.argv[0], 1, 1)),
        "named": tell(lambda: socket.sethostname(socket.gethostname())),
    }
    print(json.dumps(told), flush=True); time.sleep(0.02)
"""


@pytest.mark.parametrize("secret_is", ["shut", "open"])
def test_an_image_of_a_root_gives_a_user_nothing_that_is_roots(
    secret_is: str, place: tuple[Path, str], tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root's")
    secret.chmod(0o600)
    trial = _theirs(python(GREEDY), *place, str(secret), secret_is)
    trial.is_roots = True
    try:
        path = _suspended(trial)
        before = trial.output
        assert set(json.loads(before.splitlines()[0]).values()) == {"done"}
        trial.end()
        trial.is_roots = False
        give(trial.directory)
        trial.launch()
        trial.start(restore=path)
        if secret_is == "open":
            with pytest.raises(AssertionError, match="its image cannot be brought back"):
                trial.until("started")
            return
        told = json.loads(_printed_since(trial, before))
    finally:
        trial.end()
    assert "done" not in told.values(), told


def _suspended(trial: Theirs, restore: str | None = None) -> str:
    trial.launch()
    trial.start(restore=restore)
    trial.until("started")
    wait_for_more(trial, 20)
    trial.suspend("checkpoint")
    return str(trial.until("suspended")["checkpoint"]["path"])


def _printed_since(trial: Theirs, before: str) -> str:
    """The line after the one that the program was printing when its image was taken."""
    trial.until("started")
    while len(lines := trial.output[len(before) :].split("\n")) < 3:
        select.select([trial.daemon], [], [], 0.02)
    return lines[1]


# Becomes a program under a filter that lets all system calls through.
FILTERED = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
rule = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 1, ctypes.addressof(rule)))
no_new_privileges, seccomp, by_filter = 38, 22, 2
assert libc.prctl(no_new_privileges, 1, 0, 0, 0) == libc.prctl(seccomp, by_filter, program) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_a_filter_of_system_calls_is_named(place: tuple[Path, str]) -> None:
    folder, tool = place
    (folder / "tried").mkdir()
    give(folder)
    words = [PYTHON, "-m", "trainer_shim.host.try_image", tool, str(folder / "tried")]
    read, write = os.pipe()
    env = {"PYTHONPATH": str(folder / "shim")}
    started_as_theirs([PYTHON, "-c", FILTERED, *words], env, folder, write)
    os.close(write)
    with os.fdopen(read) as said:
        assert "a filter of system calls (seccomp) is on it" in said.read()
