"""An image that somebody has forged, with sums that are right: a host refuses it with a reason and
lives on, or brings back what it describes, with the rights of its trial."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.images.driving import WorldTrial, criu, lay_out, wait_for_more
from tests.images.programs import PROGRAMS
from tests.security.test_hostile_images import places
from trainer_shim import checkpoint_dir

pytestmark = [pytest.mark.image, pytest.mark.timeout(600)]


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[WorldTrial]:
    program = PROGRAMS["grows a file"]
    trial = WorldTrial(tmp_path / "t", [sys.executable, "main.py"], criu=criu(tmp_path))
    lay_out(program, trial.directory / "work")
    trial.launch()
    yield trial
    trial.end()


def saved(trial: WorldTrial) -> Path:
    trial.start()
    trial.until("started")
    wait_for_more(trial, 20)
    trial.suspend("checkpoint")
    path = Path(trial.until("suspended")["checkpoint"]["path"])
    trial.end()
    return path


def forge(path: Path, change: Callable[[dict[str, Any]], object] = lambda manifest: None) -> None:
    """Have the manifest say this, and of all files what they are: its sums are right."""
    manifest = json.loads((path / "manifest.json").read_text())
    for name, entry in manifest["files"].items():
        data = (path / name).read_bytes()
        entry.update(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
    change(manifest)
    manifest["sum"] = checkpoint_dir._sum_of(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


def outcome(trial: WorldTrial, path: Path) -> dict[str, Any]:
    """What a host makes of an image; it lives on, and says so."""
    trial.launch()
    trial.start(restore=str(path))
    trial.daemon.settimeout(HUNG_SECONDS)
    try:
        event = trial.until("started", "failed", "completed")
    except TimeoutError:  # what is not its program any more does nothing, or what it likes
        event = {"kind": "hung"}
    if event["kind"] == "failed":
        trial.quit()
    os.kill(trial.pid, 0)
    trial.end()
    return event


HUNG_SECONDS = 3.0
FORGED: tuple[object, ...] = (None, "x", -1, [], {}, {"x": {"x": "x"}}, 10**400, "\0", "../" * 9)


def test_a_host_refuses_every_forged_word_of_a_manifest_and_lives(trial: WorldTrial) -> None:
    path = saved(trial)
    whole = (path / "manifest.json").read_text()
    ways = [
        way
        for way in places(json.loads(whole))
        if way[0] not in ("files", "sum", "created_utc", "version") and len(way) < 4
    ]
    assert len(ways) > 40
    forgeries = [(way, FORGED[number % len(FORGED)]) for number, way in enumerate(ways)]
    for way, forged in [*forgeries, (("host", "pid"), 10**400), (("host", "pid"), -1)]:

        def change(manifest: dict[str, Any], way: Any = way, forged: object = forged) -> None:
            *above, last = way
            for name in above:
                manifest = manifest[name]
            manifest[last] = forged

        (path / "manifest.json").write_text(whole)
        forge(path, change)
        event = outcome(trial, path)
        if event["kind"] == "failed":
            assert event["error_kind"] in ("restore", "unfit"), (way, forged, event)
            assert event["detail"], (way, forged)


def test_a_host_outlives_every_file_of_an_image_that_was_cut_or_changed(
    trial: WorldTrial, tmp_path: Path
) -> None:
    path = saved(trial)
    whole = {name: name.read_bytes() for name in path.rglob("*") if name.is_file()}
    seen = set(os.listdir(tmp_path))
    failed = 0
    for name, data in whole.items():
        if name.name == "manifest.json":
            continue
        half = len(data) // 2
        for harm in (data[:half], data[:half] + b"\xff" + data[half + 1 :]):
            name.write_bytes(harm)
            forge(path)
            event = outcome(trial, path)
            failed += event["kind"] == "failed"
            assert event["kind"] != "failed" or event["detail"], name
        name.write_bytes(data)
    assert failed > len(whole)
    assert set(os.listdir(tmp_path)) == seen
