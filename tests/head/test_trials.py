"""Trials as people see and steer them, over a real socket."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import grpc
import pytest

from hermesd.core.events import Cancelled, Retried
from hermesd.head import loop
from hermesd.head.api import requests, trials
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import node_pb2
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.head.heads import Node, World, request_id, status, world
from tests.study_specs import spec, value

CODE = grpc.StatusCode
ONE = {"lr": {"value": 1.0}}
ALL = pb.Selection(study="digits")


def selection(*trials: str) -> pb.Selection:
    return pb.Selection(trials=trials)


async def test_a_trial_runs_reports_and_completes(head: World, node: Node) -> None:
    await head.submit(spec(ONE))
    launch = await node.start()
    assert list(launch.program.argv) == ["python", "train.py", "--lr=1.0"]
    assert launch.program.signal == "loss"
    await node.report(launch, 1, [0.5, 0.25])
    await node.settle()
    trial = await head.trial("digits/1")
    assert trial.state == types.TRIAL_STATE_RUNNING
    assert (trial.step, trial.metric, trial.device) == (2, 0.375, "box/cpu:0")
    assert trial.signal == pytest.approx(0.375)
    assert trial.examples_per_second == pytest.approx(128)
    assert trial.HasField("quantum")
    await node.complete(launch)
    await node.settle()
    got = await head.control.GetStudy(pb.GetStudyRequest(study="digits"))
    assert (got.study.best_trial, got.study.best_metric) == ("digits/1", 0.375)
    assert got.study.finished
    assert got.study.busy_seconds == pytest.approx(0.5)
    assert got.trials[0].state == types.TRIAL_STATE_COMPLETED


async def test_what_was_trained_twice_makes_no_trial_faster(head: World, node: Node) -> None:
    """Its process is lost at the second step, and it begins anew."""
    await head.submit(spec(ONE))
    launch = await node.start()
    await node.report(launch, 1, [0.5, 0.25])
    lost = node_pb2.RunFailed(trial=launch.trial, attempt=launch.attempt, error_kind="lost")
    await node.say(run_failed=lost)
    again = await node.start()
    await node.report(again, 1, [0.5, 0.25])
    await node.settle()
    trial = await head.trial("digits/1")
    assert (trial.step, trial.attempt) == (2, 2)
    assert trial.examples_per_second == pytest.approx(128)


async def test_a_trial_that_a_node_has_is_told_with_its_processes(head: World, node: Node) -> None:
    await head.submit(spec({"lr": {"values": [1.0, 2.0]}}))
    await node.start()
    processes = [
        node_pb2.TrialProcesses(trial="digits/1", pids=[17, 18]),
        node_pb2.TrialProcesses(trial="digits/2", pids=[19]),  # the node is behind
    ]
    await node.say(usage=node_pb2.UsageReport(processes=processes))
    await node.settle()
    found = [
        (await head.control.GetTrial(pb.GetTrialRequest(trial=trial))).pids
        for trial in ("digits/1", "digits/2")
    ]
    assert [list(pids) for pids in found] == [[17, 18], []]


async def test_a_curve_tells_how_busy_the_device_was_while_the_trial_had_it(
    head: World, node: Node
) -> None:
    async def used(share: float) -> None:
        usage = types.Usage(utilization=share, memory_bytes=7)
        device = node_pb2.DeviceUsage(device="box/cpu:0", usage=usage)
        report = node_pb2.UsageReport(devices=[device])
        await node.call.write(node_pb2.AttachRequest(usage=report))

    await used(0.9)  # by whoever was there before
    await head.submit(spec(ONE))
    launch = await node.start()
    await node.report(launch, 1, [0.5], **{"val_loss": 0.4})
    await used(0.25)
    await node.report(launch, 2, [0.4])
    await node.report(launch, 3, [0.3])  # nobody has looked again
    await used(0.0)
    await node.report(launch, 4, [0.2])
    await node.settle()
    request = pb.GetCurveRequest(trial="digits/1", metric="hermes/device_use")
    curve = await head.control.GetCurve(request)
    assert (list(curve.steps), list(curve.values)) == ([2, 4], [0.25, 0.0])
    trial = await head.trial("digits/1")
    assert [metric.name for metric in trial.metrics] == ["loss", "val_loss"], "it is ranked by none"


async def test_curves_hold_metrics_and_what_the_trial_used(head: World, node: Node) -> None:
    await head.submit(spec(ONE))
    launch = await node.start()
    await node.report(launch, 1, [0.5, 0.4, 0.3])
    await node.report(launch, 4, [0.2, math.nan, 0.1])
    await node.settle()
    curve = await head.control.GetCurve(pb.GetCurveRequest(trial="digits/1"))
    assert (curve.metric, list(curve.steps)) == ("loss", [1, 2, 3, 4, 5, 6])
    assert curve.values[:4] == [0.5, 0.4, 0.3, 0.2]
    assert math.isnan(curve.values[4])
    assert "hermes/memory_bytes" in curve.metrics_available
    few = pb.GetCurveRequest(trial="digits/1", max_points=3)
    assert list((await head.control.GetCurve(few)).steps)[::2] == [1, 6]
    memory = pb.GetCurveRequest(trial="digits/1", metric="hermes/memory_bytes")
    assert list((await head.control.GetCurve(memory)).values) == [1000.0, 1000.0]
    other = pb.GetCurveRequest(trial="digits/1", metric="nothing")
    assert list((await head.control.GetCurve(other)).steps) == []


async def test_a_paused_trial_waits_and_goes_on_when_resumed(head: World, node: Node) -> None:
    await head.submit(spec(ONE))
    launch = await node.start()
    pause = pb.PauseTrialsRequest(request_id=request_id(), selection=ALL)
    assert list((await head.control.PauseTrials(pause)).trials) == ["digits/1"]
    asked = (await node.expect("suspend")).suspend
    assert (asked.trial, asked.attempt) == ("digits/1", 1)
    await node.say(
        run_suspended=node_pb2.RunSuspended(
            trial=launch.trial, attempt=1, tier=types.TIER_PARK, step=3, release_seconds=0.01
        )
    )
    await node.settle()
    trial = await head.trial("digits/1")
    assert (trial.state, trial.paused) == (types.TRIAL_STATE_WAITING, True)
    assert (trial.kept_tier, trial.kept_node) == (types.TIER_PARK, "box")
    resume = pb.ResumeTrialsRequest(request_id=request_id(), selection=ALL)
    await head.control.ResumeTrials(resume)
    again = (await node.expect("launch")).launch
    assert (again.attempt, again.parked_attempt) == (2, 1)


async def test_a_study_is_paused_when_all_that_is_unfinished_is(head: World, node: Node) -> None:
    async def study() -> pb.Study:
        return (await head.control.GetStudy(pb.GetStudyRequest(study="digits"))).study

    await head.submit()
    one = pb.PauseTrialsRequest(request_id=request_id(), selection=selection("digits/2"))
    await head.control.PauseTrials(one)
    assert not (await study()).paused
    await head.control.PauseTrials(pb.PauseTrialsRequest(request_id=request_id(), selection=ALL))
    assert (await study()).paused
    listed = await head.control.ListStudies(pb.ListStudiesRequest())
    assert [found.paused for found in listed.studies] == [True]
    await head.control.StopTrials(pb.StopTrialsRequest(request_id=request_id(), selection=ALL))
    stopped = (await node.expect("stop")).stop
    run = {"trial": stopped.trial, "attempt": stopped.attempt}
    await node.say(run_suspended=node_pb2.RunSuspended(**run, tier=types.TIER_KILL))
    await node.settle()
    over = await study()
    assert (over.finished, over.paused) == (True, False)


async def test_a_change_names_the_trials_that_it_changed(head: World) -> None:
    """A second time, and for trials that are over, there is nothing to change."""
    await head.submit()
    control = head.control
    everything = [f"digits/{n}" for n in (1, 2, 3, 4)]
    pause, resume, stop = control.PauseTrials, control.ResumeTrials, control.StopTrials
    for call, request, wanted, changed in (
        (resume, pb.ResumeTrialsRequest, ALL, []),
        (pause, pb.PauseTrialsRequest, selection("digits/3"), ["digits/3"]),
        (pause, pb.PauseTrialsRequest, ALL, ["digits/1", "digits/2", "digits/4"]),
        (pause, pb.PauseTrialsRequest, ALL, []),
        (resume, pb.ResumeTrialsRequest, selection("digits/1", "digits/2"), everything[:2]),
        (resume, pb.ResumeTrialsRequest, ALL, everything[2:]),
        (stop, pb.StopTrialsRequest, selection("digits/4"), ["digits/4"]),
        (pause, pb.PauseTrialsRequest, ALL, everything[:3]),
        (stop, pb.StopTrialsRequest, ALL, everything[:3]),
        (resume, pb.ResumeTrialsRequest, ALL, []),
    ):
        answer = await call(request(request_id=request_id(), selection=wanted))
        assert list(answer.trials) == changed


async def test_a_trial_that_is_being_stopped_is_not_stopped_again(head: World, node: Node) -> None:
    await head.submit(spec(ONE))
    await node.start()
    for changed in (["digits/1"], []):
        stop = pb.StopTrialsRequest(request_id=request_id(), selection=ALL)
        assert list((await head.control.StopTrials(stop)).trials) == changed
    assert (await head.trial("digits/1")).reason == "stopped by a person"


async def test_why_a_run_ended_is_no_reason_to_wait(head: World, node: Node) -> None:
    await head.submit(spec(ONE))
    launch = await node.start()
    await node.say(
        run_failed=node_pb2.RunFailed(
            trial=launch.trial, attempt=1, error_kind="exception", detail="it broke", step=1
        )
    )
    again = await node.start()
    await node.settle()
    running = await head.trial("digits/1")
    assert (running.reason, running.last_run_reason) == ("", "")
    pause = pb.PauseTrialsRequest(request_id=request_id(), selection=ALL)
    await head.control.PauseTrials(pause)
    assert (await head.trial("digits/1")).reason == "paused by a person"
    await node.say(
        run_suspended=node_pb2.RunSuspended(
            trial=again.trial, attempt=2, tier=types.TIER_PARK, step=3, release_seconds=0.01
        )
    )
    await node.settle()
    held = await head.trial("digits/1")
    assert (held.reason, held.last_run_reason) == ("paused by a person", "paused by a person")
    farewell = node_pb2.Goodbye(reason="enough")
    await node.call.write(node_pb2.AttachRequest(goodbye=farewell))
    await node.ended()
    resume = pb.ResumeTrialsRequest(request_id=request_id(), selection=ALL)
    await head.control.ResumeTrials(resume)
    waits = await head.trial("digits/1")
    assert (waits.reason, waits.last_run_reason) == ("", "paused by a person")


async def test_a_stopped_trial_is_cancelled_and_can_be_tried_again(head: World, node: Node) -> None:
    await head.submit(spec(ONE))
    launch = await node.start()
    stop = pb.StopTrialsRequest(request_id=request_id(), selection=selection("digits/1"))
    await head.control.StopTrials(stop)
    assert (await node.expect("stop")).stop.trial == "digits/1"
    await node.say(
        run_suspended=node_pb2.RunSuspended(
            trial=launch.trial, attempt=1, tier=types.TIER_KILL, step=0
        )
    )
    await node.settle()
    assert (await head.trial("digits/1")).state == types.TRIAL_STATE_CANCELLED
    retry = pb.RetryTrialsRequest(request_id=request_id(), selection=selection("digits/1"))
    assert list((await head.control.RetryTrials(retry)).trials) == ["digits/1"]
    assert (await node.expect("launch")).launch.attempt == 2


async def test_only_what_ended_badly_is_tried_again(head: World, node: Node) -> None:
    await head.submit(spec(ONE))
    refused = await status(
        head.control.RetryTrials(
            pb.RetryTrialsRequest(request_id=request_id(), selection=selection("digits/1"))
        )
    )
    assert refused[0] is CODE.FAILED_PRECONDITION
    assert "only failed, stopped and cancelled" in refused[1]
    none = await status(
        head.control.RetryTrials(pb.RetryTrialsRequest(request_id=request_id(), selection=ALL))
    )
    assert "no trial of the study has failed" in none[1]


async def test_a_failed_trial_says_why_with_its_failures(head: World, node: Node) -> None:
    await head.submit(spec(ONE, retry=types.Retry(max_failures=1)))
    launch = await node.start()
    await node.say(
        run_failed=node_pb2.RunFailed(
            trial=launch.trial,
            attempt=launch.attempt,
            error_kind="exception",
            detail="ValueError: no data",
            error_signature="ValueError",
            step=3,
        )
    )
    await node.settle()
    trial = await head.trial("digits/1")
    assert trial.state == types.TRIAL_STATE_FAILED
    assert "ValueError: no data" in trial.reason
    assert [(f.error_kind, f.device, f.step) for f in trial.failures] == [
        ("exception", "box/cpu:0", 3)
    ]


async def test_why_says_who_is_before_whom(head: World, node: Node) -> None:
    await head.submit()
    await node.start()
    await node.settle()
    why = await head.control.ExplainTrial(pb.ExplainTrialRequest(trial="digits/2"))
    assert why.policy == "best_first"
    assert why.summary.startswith("digits/2 is waiting")
    assert len(why.ranking) == 4


async def test_remaining_time_is_known_once_speed_and_length_are(head: World, node: Node) -> None:
    await head.submit(spec(ONE))
    launch = await node.start()
    got = await head.control.GetStudy(pb.GetStudyRequest(study="digits"))
    assert not got.study.HasField("remaining_seconds")
    # The first report of a process holds its compilation: 0.1 s an iteration is seen in the next.
    for step, busy in ((10, 7.0), (20, 1.0)):
        first = step - 9
        chunk = node_pb2.LossChunk(first_step=first, last_step=step, count=10, total=1, high=1)
        await node.say(
            report=node_pb2.Report(
                trial=launch.trial,
                attempt=1,
                step=step,
                planned_steps=100,
                chunks=[chunk],
                busy_seconds=busy,
            )
        )
    await node.settle()
    got = await head.control.GetStudy(pb.GetStudyRequest(study="digits"))
    assert got.study.remaining_seconds == pytest.approx(8.0)
    # A person holds it back: it does not end.
    await head.control.PauseTrials(pb.PauseTrialsRequest(request_id=request_id(), selection=ALL))
    got = await head.control.GetStudy(pb.GetStudyRequest(study="digits"))
    assert not got.study.HasField("remaining_seconds")


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("digits/9", CODE.NOT_FOUND, "digits has trials 1 to 4"),
        ("digits", CODE.INVALID_ARGUMENT, "study/number"),
        ("digits/", CODE.INVALID_ARGUMENT, "study/number"),
        ("other/1", CODE.NOT_FOUND, "no study other"),
        ("\x1b[2J/1", CODE.NOT_FOUND, r"no study \x1b[2J"),
    ],
)
async def test_names_that_mean_no_trial(
    head: World, name: str, code: grpc.StatusCode, words: str
) -> None:
    await head.submit()
    refused = await status(head.control.GetCurve(pb.GetCurveRequest(trial=name)))
    assert refused[0] is code
    assert words in refused[1]


async def test_a_selection_is_of_one_study(head: World) -> None:
    await head.submit()
    await head.submit(again=True)
    mixed = pb.PauseTrialsRequest(
        request_id=request_id(), selection=selection("digits/1", "digits-2/1")
    )
    assert "trials of one study" in (await status(head.control.PauseTrials(mixed)))[1]
    nothing = pb.PauseTrialsRequest(request_id=request_id())
    assert "a study, or trials" in (await status(head.control.PauseTrials(nothing)))[1]


async def test_numbers_out_of_range_are_refused(head: World) -> None:
    await head.submit()
    for call in (
        head.control.BestTrials(pb.BestTrialsRequest(study="digits", count=-1)),
        head.control.GetCurve(pb.GetCurveRequest(trial="digits/1", max_points=-1)),
        head.control.ListTrials(pb.ListTrialsRequest(study="digits", page_size=-1)),
    ):
        assert (await status(call))[0] is CODE.INVALID_ARGUMENT


async def test_a_trial_whose_loss_is_not_finite_is_not_extended(head: World, node: Node) -> None:
    await head.submit(spec(ONE))
    launch = await node.start()
    await node.report(launch, 1, [math.nan], not_finite=True)
    await node.complete(launch, 1)
    await node.settle()
    change = pb.ExtendStudyRequest(
        request_id=request_id(), selection=ALL, stop=types.Stop(max_steps=99)
    )
    code, words = await status(head.control.ExtendStudy(change))
    assert code is CODE.FAILED_PRECONDITION
    assert "not finite" in words
    assert (await head.trial("digits/1")).state != types.TRIAL_STATE_WAITING


async def completed(
    head: World, node: Node, kept: types.Checkpoint | None, axes: dict[str, dict[str, object]] = ONE
) -> None:
    """A trial that has done 10 steps in half a second."""
    await head.submit(spec(axes))
    await complete(node, kept)


async def complete(node: Node, kept: types.Checkpoint | None) -> None:
    launch = await node.start()
    await node.report(launch, 1, [0.5])
    run = {"trial": launch.trial, "attempt": launch.attempt}
    level = types.FIDELITY_EXACT if kept else types.FIDELITY_PARK_ONLY
    known = node_pb2.FidelityKnown(**run, fidelity=level, reason="no boundaries seen")
    await node.say(fidelity_known=known)
    await node.say(run_completed=node_pb2.RunCompleted(**run, step=10, checkpoint=kept))
    await node.settle()


KEPT = types.Checkpoint(id="digits/1@c10", trial="digits/1", attempt=1, step=10, nodes=["box"])


@pytest.mark.parametrize(
    ("stop", "words"),
    [
        (types.Stop(max_steps=10), "stop.max_steps = 10: expected more than 10, the steps that"),
        (types.Stop(max_seconds=0.25), "stop.max_seconds = 0.25: expected more than 0.5, the sec"),
    ],
)
async def test_a_trial_is_not_extended_to_less_than_it_has_done(
    head: World, node: Node, stop: types.Stop, words: str
) -> None:
    await completed(head, node, KEPT)
    change = pb.ExtendStudyRequest(request_id=request_id(), selection=ALL, stop=stop)
    code, said = await status(head.control.ExtendStudy(change))
    assert code is CODE.INVALID_ARGUMENT
    assert words in said
    assert (await head.trial("digits/1")).state == types.TRIAL_STATE_COMPLETED


@pytest.mark.parametrize(
    ("changed", "new", "words"),
    [
        ({"lr": 0.05}, {}, "expected a length beside it, --set epochs=N (it had 5): digits/1 has"),
        ({"epochs": 5}, {}, "parameters.epochs = 5: expected a length beside it, --set epochs=N"),
        ({"lr": 0.05, "epochs": 6}, {}, ""),
        ({}, {"nesterov": True}, "parameters.nesterov = True: expected a length beside it"),
        ({}, {"budget": 3}, ""),
    ],
)
async def test_a_trial_that_has_completed_needs_a_length_to_go_on(
    head: World, node: Node, changed: dict[str, object], new: dict[str, object], words: str
) -> None:
    await completed(head, node, KEPT, {"lr": {"value": 0.001}, "epochs": {"value": 5}})
    change = pb.ExtendStudyRequest(request_id=request_id(), selection=ALL)
    for name, wanted in changed.items():
        change.parameters.add(name=name, value=value(wanted))
    for name, wanted in new.items():
        change.new_parameters.add(name=name, value=value(wanted))
    if words:
        code, said = await status(head.control.ExtendStudy(change))
        assert (code, words in said) == (CODE.INVALID_ARGUMENT, True), said
        assert (await head.trial("digits/1")).state == types.TRIAL_STATE_COMPLETED
    else:
        assert (await head.control.ExtendStudy(change)).trials == ["digits/1"]
        assert (await node.expect("launch")).launch.trial == "digits/1"


async def test_a_limit_concerns_no_trial_whose_program_has_ended_by_itself(
    head: World, node: Node
) -> None:
    await head.submit(spec({"lr": {"values": [0.1, 0.2]}}))
    other = pb.Selection(trials=["digits/2"])
    await head.control.StopTrials(pb.StopTrialsRequest(request_id=request_id(), selection=other))
    await complete(node, KEPT)
    for chosen, going in ((pb.Selection(trials=["digits/1"]), []), (ALL, ["digits/2"])):
        change = pb.ExtendStudyRequest(
            request_id=request_id(), selection=chosen, stop=types.Stop(max_steps=99)
        )
        if going:
            assert (await head.control.ExtendStudy(change)).trials == going
        else:
            code, said = await status(head.control.ExtendStudy(change))
            assert code is CODE.INVALID_ARGUMENT
            assert "stop: expected a length beside it, --new epochs=N or its like: digits/1" in said
    assert (await head.trial("digits/1")).state == types.TRIAL_STATE_COMPLETED


async def test_a_trial_without_an_end_to_go_on_from_is_not_extended(
    head: World, node: Node
) -> None:
    await completed(head, node, None)
    change = pb.ExtendStudyRequest(
        request_id=request_id(), selection=ALL, stop=types.Stop(max_steps=99)
    )
    code, said = await status(head.control.ExtendStudy(change))
    assert code is CODE.FAILED_PRECONDITION
    assert "1 of 1 trials have no checkpoint to go on from" in said
    assert "digits/1 is park-only: no boundaries seen" in said
    assert (await head.trial("digits/1")).state == types.TRIAL_STATE_COMPLETED


async def test_an_extension_tells_its_node_which_checkpoint_stays(head: World, node: Node) -> None:
    await completed(head, node, KEPT)
    change = pb.ExtendStudyRequest(request_id=request_id(), selection=ALL)
    change.new_parameters.add(name="epochs", value=value(9))
    assert (await head.control.ExtendStudy(change)).trials == ["digits/1"]
    again = (await node.expect("launch")).launch
    assert (again.checkpoint.id, again.result_checkpoint) == (KEPT.id, KEPT.id)


@pytest.mark.parametrize("level", [types.FIDELITY_EXACT, types.FIDELITY_PARK_ONLY])
async def test_a_stop_tells_what_is_lost_by_it(
    head: World, node: Node, level: types.Fidelity
) -> None:
    await head.submit(spec(ONE))
    launch = await node.start()
    run = {"trial": launch.trial, "attempt": launch.attempt}
    known = node_pb2.FidelityKnown(**run, fidelity=level, reason="it prints and no more")
    await node.say(fidelity_known=known)
    await node.report(launch, 1, [0.5, 0.4])
    await node.settle()
    stopped = await head.control.StopTrials(
        pb.StopTrialsRequest(request_id=request_id(), selection=ALL)
    )
    assert stopped.trials == ["digits/1"]
    assert list(stopped.notes) == (
        []
        if level == types.FIDELITY_EXACT
        else [
            "no checkpoint can be taken of digits/1 (2 steps): a retry starts over (it prints and"
            " no more)"
        ]
    )


async def test_what_is_asked_of_many_trials_is_done_in_parts_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two parts there is room for others."""
    for module in (requests, trials):
        monkeypatch.setattr(module, "PART", 2)
    async with world(tmp_path) as head:
        await head.submit(spec({"lr": {"values": [0.1, 0.2, 0.3, 0.4, 0.5]}}))
        every = [f"digits/{number}" for number in range(1, 6)]
        third = pb.Selection(trials=["digits/3", "digits/4"])
        await head.control.StopTrials(
            pb.StopTrialsRequest(request_id=request_id(), selection=third)
        )
        whole = pb.Selection(study="digits")
        stop = pb.StopTrialsRequest(request_id=request_id(), selection=whole)
        for _ in range(2):
            stopped = (await head.control.StopTrials(stop)).trials
            assert stopped == ["digits/1", "digits/2", "digits/5"]
        retry = pb.RetryTrialsRequest(request_id=request_id(), selection=whole)
        for _ in range(2):
            assert (await head.control.RetryTrials(retry)).trials == every
        mark = pb.MarkTrialsRequest(request_id=request_id(), selection=whole, add_tags=["x"])
        assert (await head.control.MarkTrials(mark)).trials == every
        entries = [line.entry for line in await head.running.head.journal.read(0)]
        parts = [len(each.trials) for each in entries if isinstance(each, Cancelled | Retried)]
        assert parts == [2, 2, 1, 2, 2, 1]
        nothing = pb.RetryTrialsRequest(request_id=request_id(), selection=whole)
        assert (await status(head.control.RetryTrials(nothing)))[0] is CODE.FAILED_PRECONDITION


async def test_whether_many_trials_may_be_changed_is_seen_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (requests, trials):
        monkeypatch.setattr(module, "PART", 2)
    monkeypatch.setattr(loop, "SMALL", 4)
    threads = []

    def room(*_: object) -> None:
        threads.append(threading.current_thread())

    monkeypatch.setattr(trials, "within_quota", room)
    async with world(tmp_path) as head:
        await head.submit(spec({"lr": {"values": [0.1, 0.2, 0.3, 0.4, 0.5]}}))
        whole = pb.Selection(study="digits")
        stop = pb.StopTrialsRequest(request_id=request_id(), selection=whole)
        assert len((await head.control.StopTrials(stop)).trials) == 5
    assert threads
    assert threading.main_thread() not in threads


async def test_so_many_trials_are_named_that_the_loop_would_stand_still(head: World) -> None:
    await head.submit()
    named = pb.Selection(trials=["digits/1"] * 10_001)
    request = pb.PauseTrialsRequest(request_id=request_id(), selection=named)
    code, words = await status(head.control.PauseTrials(request))
    assert (code, "at most 10,000, or the study" in words) == (CODE.INVALID_ARGUMENT, True)
