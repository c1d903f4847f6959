"""A supervisor at rest asks for no attention: a host with nothing to do must not spin."""

from __future__ import annotations

from pathlib import Path

from tests.trainer_shim.driving import Trial
from trainer_shim.spec import Spec
from trainer_shim.supervisor import Supervisor


def test_nothing_is_due_once_the_program_is_over_and_gone(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "t", ["true"])
    supervisor = Supervisor(Spec.load(str(trial.spec)), lambda event: None)
    supervisor.heard({"kind": "completed", "exit_code": 0, "checkpoint": None, "metrics": {}})
    assert supervisor.deadline() is None
    supervisor.close()
