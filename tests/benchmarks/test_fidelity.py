"""What the benchmark of the simulator makes of a study, without running one."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from benchmarks.fidelity import kendall_tau, wanted
from benchmarks.live import kept
from hermesd.sim.contenders import contenders


def test_the_same_order_agrees_and_the_opposite_one_disagrees() -> None:
    assert kendall_tau([1.0, 2.0, 3.0], [10.0, 20.0, 30.0]) == 1.0
    assert kendall_tau([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]) == -1.0
    assert kendall_tau([1.0, 2.0, 3.0], [1.0, 3.0, 2.0]) == pytest.approx(1 / 3)
    assert kendall_tau([1.0, 1.0], [1.0, 2.0]) == 0.0


def test_a_policy_is_written_into_the_study_with_its_settings() -> None:
    (contender,) = contenders("hermes:placement=homes,g_thres=2,milestones=25:50")
    study = wanted(contender, slots=2, epochs=1).study()
    assert study["schedule"] == {
        "policy": {"name": "hermes", "milestones": [25, 50]},
        "placement": {"name": "homes", "G_thres": 2},
    }


def test_a_run_is_known_by_the_defaults_of_its_policy_too() -> None:
    (contender,) = contenders("round_robin")
    settings = wanted(contender, slots=2, epochs=1).settings()
    assert settings == "RoundRobin(quantum_seconds=30.0), Free(speeds='measured')"


def test_a_run_of_another_study_is_not_taken_for_this_one(tmp_path: Path) -> None:
    (fifo,) = contenders("fifo")
    one = wanted(fifo, slots=2, epochs=1)
    assert kept(one, tmp_path) is None
    (tmp_path / f"{one.name}.json").write_text('{"fingerprint": "another"}')
    assert kept(one, tmp_path) is None
    about = {"fingerprint": one.fingerprint(), "settings": "Fifo(quick=True), Free()"}
    (tmp_path / f"{one.name}.json").write_text(json.dumps(about))
    assert kept(one, tmp_path) is None
    about = {"fingerprint": one.fingerprint(), "conditions": {"cores": 0}}
    (tmp_path / f"{one.name}.json").write_text(json.dumps(about))
    with pytest.raises(SystemExit, match=r"measured with .*cores=0.*; move .* away"):
        kept(one, tmp_path)
    others = [
        dataclasses.replace(one, slots=1),
        dataclasses.replace(one, warm=False),
        dataclasses.replace(one, earlier=one),
        dataclasses.replace(one, contender=contenders("asha")[0]),
        dataclasses.replace(one, spec={**one.spec, "name": "other"}),
    ]
    assert one.fingerprint() not in {other.fingerprint() for other in others}
