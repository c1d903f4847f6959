"""What every trial of a study would meet at once is met by three of them, and told."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermesd.pb.hermes.v1 import control_pb2 as control
from hermesd.pb.hermes.v1 import types_pb2
from tests.e2e.cluster import Cluster, multiplying, running

RATES = [0.001, 0.01, 0.1, 1.0, 2.0, 3.0, 4.0, 5.0]
FAILED = types_pb2.TRIAL_STATE_FAILED
STOPPED = types_pb2.TRIAL_STATE_STOPPED


async def launches(cluster: Cluster, study: str) -> list[str]:
    """The runs that were begun, in their order."""
    request = control.WatchJournalRequest(study=study, once=True)
    told = [event async for said in cluster.stub.WatchJournal(request) for event in said.events]
    launched = [e for e in told if e.kind == control.PUBLIC_EVENT_KIND_LAUNCHED]
    return [f"{event.trial}#{event.attempt}" for event in launched]


@pytest.mark.timeout(120)
async def test_a_misspelled_argument_is_tried_by_a_few_trials_once_each_and_not_by_all(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    state: Path = tmp_path_factory.mktemp("h")
    async with running(state) as cluster:
        files = {"train.py": multiplying("step < 10")}
        study = await cluster.submit("misspelled", files, {"rte": RATES})
        answer = await cluster.finished(study)
        states = [trial.state for trial in answer.trials]
        assert set(states) == {FAILED, STOPPED}
        begun = await launches(cluster, study)
        assert len(begun) < len(RATES), "the grid is not burnt through"
        assert all(run.endswith("#1") for run in begun), "no trial is tried twice"
        first = next(trial for trial in answer.trials if trial.state == FAILED)
        words = "train.py: error: unrecognized arguments: "
        assert words in first.failures[0].detail
        (notice,) = answer.study.notices
        assert words in notice
        assert f"hermesctl study retry {study}" in notice

        retry = types_pb2.Retry(on_same_failure=types_pb2.ON_SAME_FAILURE_GO_ON)
        other = await cluster.submit("all", files, {"rte": RATES}, retry=retry)
        answer = await cluster.finished(other)
        assert [trial.state for trial in answer.trials] == [FAILED] * len(RATES)
        assert len(await launches(cluster, other)) == len(RATES)


@pytest.mark.timeout(120)
async def test_an_import_that_fails_stops_the_study_once_both_devices_have_seen_it(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    state: Path = tmp_path_factory.mktemp("h")
    async with running(state) as cluster:
        study = await cluster.submit(
            "missing", {"train.py": "import no_such_thing\n"}, {"r": RATES}
        )
        answer = await cluster.finished(study)
        assert {trial.state for trial in answer.trials} == {FAILED, STOPPED}
        (notice,) = answer.study.notices
        assert "ModuleNotFoundError: No module named 'no_such_thing'" in notice
