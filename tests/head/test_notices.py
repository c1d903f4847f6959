"""What the author of a study is told of it."""

from __future__ import annotations

import json
import re
import traceback
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hermesd import wire
from hermesd.core.node.messages import Series
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import node_pb2
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.head.heads import Node, World, world
from tests.installed_policies import lucky_policies
from tests.study_specs import plugin, spec

MISSPELLED = types.Signal(name="losss")
ONE = {"lr": {"value": 0.1}}


async def shown(head: World, study: str = "digits") -> pb.Study:
    """The study, which is the same wherever it is asked for."""
    one = (await head.control.GetStudy(pb.GetStudyRequest(study=study))).study
    listed = (await head.control.ListStudies(pb.ListStudiesRequest())).studies
    assert list(one.notices) == next(list(s.notices) for s in listed if s.id == study)
    return one


async def test_a_signal_that_nobody_reports_is_told_and_what_is_reported(
    head: World, node: Node
) -> None:
    await head.submit(spec(ONE, signal=MISSPELLED))
    launch = await node.start()
    await node.settle()
    assert (await shown(head)).notices == [], "nothing was reported yet"
    await node.report(launch, 1, [3.0, 2.0], chunks=False, acc=0.5)
    await node.settle()
    study = await shown(head)
    reported = "; reported: acc, loss (did you mean loss?)"
    assert study.notices == [f"signal losss has not been reported so far{reported}"]
    assert study.reported == ["acc", "loss"]
    await node.complete(launch, 2)
    await node.settle()
    assert (await shown(head)).notices == [f"signal losss was never reported{reported}"]


async def test_the_metric_of_the_study_is_offered_where_no_loss_is_reported(
    head: World, node: Node
) -> None:
    """Till then its policy has nothing to go by; the advice comes first, as lines are cut."""
    metric = types.Metric(name="acc", goal=types.GOAL_MAXIMIZE)
    await head.submit(spec({"lr": {"values": [1.0, 2.0]}}, metric=metric))
    launch = await node.start()
    points = wire.points_to_proto(Series(name, [1], [0.5]) for name in ("acc", "auc"))
    run = {"trial": launch.trial, "attempt": launch.attempt}
    await node.say(report=node_pb2.Report(**run, step=1, points=points))
    await node.settle()
    (notice,) = (await shown(head)).notices
    command = "hermesctl study signal digits acc --goal maximize"
    assert notice.startswith(f"signal loss has not been reported so far: `{command}` has policies")
    assert "reported: acc, auc" in notice


async def test_a_signal_that_is_reported_is_no_news(head: World, node: Node) -> None:
    await head.submit(spec(ONE))
    await node.report(await node.start(), 1, [3.0, 2.0])
    await node.settle()
    study = await shown(head)
    assert (study.notices, study.reported) == ([], ["loss"])


@pytest.mark.parametrize(
    ("told", "meant", "choice"),
    [
        ({"mse": 0.1}, "", "mse"),
        ({"acc": 0.5, "train_loss": 0.1}, " (did you mean train_loss?)", "train_loss"),
        ({"acc": 0.5, "mse": 0.1}, "", "NAME"),
    ],
)
async def test_a_leaderboard_of_a_signal_that_nobody_reports_is_told_what_ranks(
    head: World, node: Node, told: dict[str, float], meant: str, choice: str
) -> None:
    """The study names no metric, so what policies read is also what it ranks by."""
    await head.submit(spec(ONE))
    launch = await node.start()
    points = wire.points_to_proto(Series(name, [1], [value]) for name, value in told.items())
    run = {"trial": launch.trial, "attempt": launch.attempt}
    await node.say(report=node_pb2.Report(**run, step=1, points=points))
    await node.complete(launch, 1)
    await node.settle()
    assert (await shown(head)).notices == [
        f"signal loss was never reported; reported: {', '.join(told)}{meant}:"
        f" `hermesctl study metric digits {choice}` ranks by that one"
    ]


async def test_a_silent_signal_s_notice_names_what_policies_are_going_to_read(
    head: World, node: Node
) -> None:
    """The training loss, though the validation loss ranks the trials."""
    await head.submit(spec(ONE))
    launch = await node.start()
    points = wire.points_to_proto(Series(name, [1], [0.5]) for name in ("train_loss", "val_loss"))
    run = {"trial": launch.trial, "attempt": launch.attempt}
    await node.say(report=node_pb2.Report(**run, step=1, points=points))
    await node.settle()
    assert (await shown(head)).notices == [
        "signal loss has not been reported so far: `hermesctl study signal digits train_loss` has"
        " policies read that metric; reported: train_loss, val_loss (did you mean train_loss?)"
    ]


async def test_the_goal_of_a_metric_that_never_came_is_not_that_of_another(
    head: World, node: Node
) -> None:
    named = types.Metric(name="val_acc", goal=types.GOAL_MAXIMIZE)
    await head.submit(spec(ONE, metric=named))
    launch = await node.start()
    await node.report(launch, 1, [3.0, 2.0])
    await node.complete(launch, 2)
    await node.settle()
    (notice,) = (await shown(head)).notices
    assert "reported: loss: `hermesctl study metric digits loss` ranks by that one" in notice


async def test_a_metric_that_a_minute_has_not_brought_is_told_with_what_brings_it(
    head: World, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {"metric": types.Metric(name="val_loss"), "signal": types.Signal(name="loss")}
    await head.submit(spec(ONE, **named))
    launch = await node.start()
    await node.report(launch, 1, [3.0, 2.0])
    await node.settle()
    assert (await shown(head)).notices == [], "it may come with the first epoch"
    monkeypatch.setattr("hermesd.head.api.notices.SOON_SECONDS", 0.0)
    (notice,) = (await shown(head)).notices
    choose = "`hermesctl study metric digits loss` ranks by that one; "
    reported = f"reported: loss (did you mean loss?): {choose}"
    assert notice.startswith(f"metric val_loss has not been reported so far; {reported}")
    assert "trainer_shim.log(val_loss=...), or by `metrics:` in the study file" in notice
    assert list((await why(head)).notices) == [notice]
    await node.report(launch, 3, [2.0], val_loss=1.0)
    await node.settle()
    assert (await shown(head)).notices == []


@pytest.mark.parametrize(("metric", "is_told"), [("accuracy", True), ("val_accuracy", False)])
async def test_a_metric_that_the_first_quantum_has_not_brought_is_told_unless_it_may_be_an_epoch_s(
    head: World, node: Node, metric: str, is_told: bool
) -> None:
    named = {"metric": types.Metric(name=metric), "signal": types.Signal(name="loss")}
    await head.submit(spec(ONE, **named))
    launch = await node.start()
    await node.report(launch, 1, [3.0, 2.0], acc=0.5)
    await node.settle()
    assert (await shown(head)).notices == [], "its first quantum is not over"
    run = {"trial": launch.trial, "attempt": launch.attempt}
    await node.say(quantum_ended=node_pb2.QuantumEnded(**run, step=2))
    await node.settle()
    told = [f"metric {metric} has not been reported so far; reported: acc, loss"]
    assert [words[: len(told[0])] for words in (await shown(head)).notices] == told * is_told


async def test_a_metric_that_no_epoch_of_any_loop_brings_is_told_at_its_end(
    head: World, node: Node
) -> None:
    """Also of a program whose metrics do not say by their names that they are an epoch's."""
    named = types.Metric(name="val_acc", goal=types.GOAL_MAXIMIZE)
    await head.submit(spec(ONE, metric=named))
    launch = await node.start()
    await node.report(launch, 1, [3.0, 2.0])
    await node.settle()
    assert (await shown(head)).notices == [], "it may come with the first epoch"
    await node.report(launch, 3, [2.0], passes=1, Valid_Acc=0.5)
    await node.settle()
    (notice,) = (await shown(head)).notices
    assert notice == (
        "metric val_acc has not been reported so far; reported: Valid_Acc, loss"
        " (did you mean Valid_Acc?): `hermesctl study metric digits Valid_Acc --goal maximize`"
        " ranks by that one"
    )


async def test_a_slow_start_counts_for_no_missing_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A minute of imports is no minute of training."""
    monkeypatch.setattr("hermesd.head.api.notices.SOON_SECONDS", 1e-9)
    async with world(tmp_path / "head") as head:
        node = Node(head)
        await node.hello()
        await head.submit(spec(ONE, metric=types.Metric(name="val_loss")))
        launch = (await node.expect("launch")).launch
        assert (await shown(head)).notices == [], "it has not started"
        run = {"trial": launch.trial, "attempt": launch.attempt}
        await node.say(run_started=node_pb2.RunStarted(**run, start_seconds=1000.0))
        await node.settle()
        assert (await shown(head)).notices == [], "all its time was the start"
        node.call.cancel()


async def test_a_metric_that_a_whole_program_has_not_brought_is_told_however_short_it_is(
    head: World,
    node: Node,
) -> None:
    await head.submit(spec(ONE, metric=types.Metric(name="val_acuracy")))
    launch = await node.start()
    await node.report(launch, 1, [3.0, 2.0], accuracy=0.5)
    await node.settle()
    assert (await shown(head)).notices == []
    await node.complete(launch, 2)
    await node.settle()
    (notice,) = (await shown(head)).notices
    assert notice.startswith(
        "metric val_acuracy was never reported; reported: accuracy, loss"
        " (did you mean accuracy?): `hermesctl study metric digits accuracy` ranks by that one"
    )


async def test_trials_that_completed_and_reported_nothing_are_told(head: World, node: Node) -> None:
    await head.submit(spec({"lr": {"values": [0.1, 0.2]}}))
    await node.complete(await node.start(), 0)
    await node.settle()
    (notice,) = (await shown(head)).notices
    assert notice.startswith("metric loss was never reported; a program reports it by")
    launch = await node.start()
    await node.report(launch, 1, [3.0, 2.0])
    await node.complete(launch, 2)
    await node.settle()
    (notice,) = (await shown(head)).notices
    assert notice.startswith("1 of 2 completed trials reported nothing (digits/1)")


async def test_trials_that_all_came_to_the_same_are_told_until_one_has_not(
    head: World, node: Node
) -> None:
    await head.submit(spec({"lr": {"values": [0.1, 0.2, 0.3]}}))
    for number, losses in enumerate(([3.0, 2.0], [3.0, 2.0], [3.0, 2.5])):
        launch = await node.start()
        await node.report(launch, 1, losses)
        await node.complete(launch, 2)
        await node.settle()
        told = (await shown(head)).notices
        assert len(told) == (number == 1)
        assert not told or told[0].startswith(
            "digits/1, digits/2 came to the very same values with different parameters: does the"
            " program use them? It gets them by `"
        )
        assert not told or "train.py --lr=0.1`" in told[0]


@pytest.mark.parametrize(
    ("values", "losses"),
    [
        pytest.param([0.1, 0.2], [0.9375], id="one-accuracy-at-the-end"),
        pytest.param([0.1, 0.2], [0.9375, 0.9375], id="only-the-epoch-rises"),
        pytest.param([0.1], [3.0, 2.0], id="the-same-point-twice"),
    ],
)
async def test_trials_that_may_well_come_to_the_same_are_no_news(
    head: World, node: Node, values: list[float], losses: list[float]
) -> None:
    drawn = {"method": types.SEARCH_METHOD_RANDOM, "run_cap": 2} if len(values) == 1 else {}
    await head.submit(spec({"lr": {"values": values}}, **drawn))
    for _ in range(2):
        launch = await node.start()
        for step, loss in enumerate(losses, start=1):
            await node.report(launch, step, [loss], epoch=step)
        await node.complete(launch, len(losses))
    await node.settle()
    assert (await shown(head)).notices == []


async def test_a_metric_that_the_first_epoch_has_not_brought_is_told_at_its_end(
    head: World,
    node: Node,
) -> None:
    metric = types.Metric(name="val_acuracy", goal=types.GOAL_MAXIMIZE)
    await head.submit(spec(ONE, metric=metric))
    launch = await node.start()
    await node.report(launch, 1, [3.0, 2.0])
    await node.settle()
    assert (await shown(head)).notices == []
    await node.report(launch, 3, [2.0], val_accuracy=0.5)
    await node.settle()
    (notice,) = (await shown(head)).notices
    assert notice.startswith(
        "metric val_acuracy has not been reported so far; reported: loss, val_accuracy (did you"
        " mean val_accuracy?): `hermesctl study metric digits val_accuracy --goal maximize` ranks"
    )
    await node.report(launch, 4, [2.0], val_accuracy=0.6)
    await node.settle()
    chosen = pb.SetMetricRequest(request_id="choose", study="digits")
    chosen.metric.CopyFrom(types.Metric(name="val_accuracy", goal=types.GOAL_MAXIMIZE))
    answer = await head.control.SetMetric(chosen)
    assert "hermesctl study signal digits val_accuracy --goal maximize" in answer.notes[0]
    assert (await shown(head)).notices == []


async def test_a_metric_that_the_very_same_program_never_reported_is_told_before_it_runs(
    head: World,
    node: Node,
) -> None:
    script = "a" * 64
    await head.submit(spec(ONE), program_sha256=script)
    launch = await node.start()
    await node.report(launch, 1, [3.0, 2.0], val_mae=1.0)
    await node.complete(launch, 2)
    await node.settle()
    never = "was never reported by this program (digits); reported: loss, val_mae"
    meant = f"{never} (did you mean val_mae?)"
    assert await foretold(head, script, metric="val_mea") == [f"metric val_mea {meant}"]
    assert await foretold(head, script, metric="val_mae") == []
    assert await foretold(head, script, "val_mea", "val_mea") == [f"signal val_mea {meant}"]


async def test_a_signal_that_the_very_same_program_never_reported_is_told_before_it_runs(
    head: World,
    node: Node,
) -> None:
    script, other = "a" * 64, "b" * 64
    await head.submit(spec(ONE), program_sha256=script)
    launch = await node.start()
    await node.report(launch, 1, [3.0, 2.0])
    await node.settle()
    assert await foretold(head, script, "losss") == [], "it goes on, and may report it yet"
    await node.complete(launch, 2)
    await node.settle()
    assert await foretold(head, script, "losss") == [
        "signal losss was never reported by this program (digits); reported: loss"
        " (did you mean loss?)"
    ]
    assert await foretold(head, script, "loss") == await foretold(head, other, "losss") == []
    assert await foretold(head, "", "losss") == []


async def test_what_policies_will_read_instead_of_a_loss_is_told_before_it_runs(
    head: World,
    node: Node,
) -> None:
    script = "a" * 64
    await head.submit(spec(ONE), program_sha256=script)
    launch = await node.start()
    points = wire.points_to_proto(Series(name, [1], [0.5]) for name in ("acc", "train_loss"))
    run = {"trial": launch.trial, "attempt": launch.attempt}
    await node.say(report=node_pb2.Report(**run, step=1, points=points))
    await node.complete(launch, 1)
    await node.settle()
    # It is of the study to come, whatever those before have been told to read since.
    await head.control.SetSignal(
        pb.SetSignalRequest(request_id="s", study="digits", signal=types.Signal(name="train_loss"))
    )
    await head.submit(spec(ONE, name="waiting"), program_sha256=script)
    told = (
        "the study names no signal, and this program has never reported loss (digits): policies"
        " will read {0} once a trial has had a quantum or ended; `--set signal.name={0}` has them"
        " read it from the first step"
    )
    assert await foretold(head, script) == [told.format("train_loss")]
    assert await foretold(head, script, metric="acc") == [told.format("acc")]
    assert await foretold(head, script, "train_loss", "acc") == []


async def test_a_program_that_never_reported_anything_is_told_before_it_runs_again(
    head: World, node: Node
) -> None:
    script, other = "a" * 64, "b" * 64
    await head.submit(spec(ONE), program_sha256=script)
    assert await foretold(head, script) == [], "it goes on, and may report something yet"
    await node.complete(await node.start(), 0)
    await node.settle()
    told = (
        "this program has never reported a metric (digits): nothing will rank its trials or tell"
        " policies which to train; a program reports it by trainer_shim.log({}=...), or by"
        " `metrics:` in the study file, from what it prints"
    )
    assert await foretold(head, script) == [told.format("loss")]
    assert await foretold(head, script, metric="acc") == [told.format("acc")]
    assert await foretold(head, other) == []
    found = [types.MetricPattern(name="acc", pattern="accuracy so far: (.*)")]
    answer = await head.submit(spec(ONE, metrics=found), program_sha256=script, validate_only=True)
    assert not any("never" in note for note in answer.notes), "that may find what it prints"


OTHER = "policies read loss, as the study names no signal; val_loss "
ADVICE = ": `--set signal.name=val_loss` makes them read it"
ADVICE_NOW = ": `hermesctl study signal digits val_loss` makes them read it"


async def test_a_validation_loss_that_no_policy_reads_is_told_while_trials_are_left(
    head: World,
    node: Node,
) -> None:
    await head.submit(spec(ONE, metric=types.Metric(name="val_loss")))
    launch = await node.start()
    await node.report(launch, 1, [3.0, 2.0])
    await node.settle()
    assert (await why(head)).notices == [], "it may have none"
    await node.report(launch, 3, [2.0], val_loss=1.0)
    await node.settle()
    assert (await why(head)).notices == [f"{OTHER}is reported too{ADVICE_NOW}"]
    assert (await shown(head)).notices == [], "who looks at it decides nothing"
    await node.complete(launch, 3)
    await node.settle()
    assert (await why(head)).notices == [], "nothing is decided any more"


async def test_the_metric_of_the_study_is_told_before_a_validation_loss(
    head: World, node: Node
) -> None:
    accuracy = types.Metric(name="val_acc", goal=types.GOAL_MAXIMIZE)
    await head.submit(spec(ONE, metric=accuracy))
    launch = await node.start()
    await node.report(launch, 1, [3.0, 2.0], val_acc=0.1, val_loss=1.0)
    await node.settle()
    (notice,) = (await why(head)).notices
    assert "; val_loss is reported too: " in notice, "all that is known of val_acc is the same"
    await node.report(launch, 3, [1.0], val_acc=0.2, val_loss=1.0)
    await node.settle()
    (notice,) = (await why(head)).notices
    assert "; val_acc is reported too: " in notice
    assert "`hermesctl study signal digits val_acc --goal maximize`" in notice


@pytest.mark.parametrize("signal", ["loss", "val_loss"])
async def test_a_signal_that_the_study_names_is_its_author_s_word(
    head: World, node: Node, signal: str
) -> None:
    await head.submit(spec(ONE, signal=types.Signal(name=signal)))
    await node.report(await node.start(), 1, [3.0, 2.0], val_loss=1.0)
    await node.settle()
    study = await shown(head)
    assert (study.notices, study.reported) == ([], ["loss", "val_loss"])
    assert (await why(head)).notices == []


async def test_a_validation_loss_of_the_very_same_program_is_told_before_it_runs(
    head: World,
    node: Node,
) -> None:
    script, other = "a" * 64, "b" * 64
    await head.submit(spec(ONE), program_sha256=script)
    launch = await node.start()
    await node.report(launch, 1, [3.0, 2.0], val_loss=1.0)
    await node.complete(launch, 2)
    await node.settle()
    assert await foretold(head, script) == [
        f"{OTHER}was reported by this program too (digits){ADVICE}"
    ]
    assert await foretold(head, other) == []
    assert await foretold(head, script, "loss") == []
    assert await foretold(head, script, "val_loss") == []


async def test_that_policies_read_another_metric_than_ranks_is_told_of_a_program_not_seen_before(
    head: World,
) -> None:
    other = "b" * 64
    told = (
        "{} ranks the trials; policies read loss, the training loss, where it is reported:"
        " `--set signal.name={}` has them read {}"
    )
    assert await foretold(head, other, metric="acc") == [told.format(*["acc"] * 3)]
    assert await foretold(head, other, metric="loss") == []
    assert await foretold(head, other) == [], "nobody knows yet what will rank them"
    for signal in ("loss", "val_loss"):
        assert await foretold(head, other, signal, "acc") == [], "it is its author's word"
    await head.submit(spec(ONE))
    assert (await shown(head)).signal == "loss"


async def foretold(head: World, sha256: str, signal: str = "", metric: str = "") -> list[str]:
    """What is said of what a study of this program goes by before it is submitted."""
    ranked = types.Metric(
        name=metric, goal=types.GOAL_MINIMIZE if metric else types.GOAL_UNSPECIFIED
    )
    named = {"signal": types.Signal(name=signal), "metric": ranked}
    wanted = spec(ONE, name="new", **named)
    checked = await head.submit(wanted, program_sha256=sha256, validate_only=True)
    return [note for note in checked.notes if "signal" in note or "metric" in note]


async def why(head: World, trial: str = "digits/1") -> pb.ExplainTrialResponse:
    return await head.control.ExplainTrial(pb.ExplainTrialRequest(trial=trial))


async def test_a_policy_that_failed_is_told_with_what_decides_instead(tmp_path: Path) -> None:
    with lucky_policies(tmp_path), capture_logs() as logged:
        async with world(tmp_path / "head") as head:
            node = Node(head)
            await node.hello()
            unlucky = types.Schedule(policy=plugin("unlucky", luck=2.0))
            await head.submit(spec(schedule=unlucky))
            assert (await node.expect("launch")).launch.trial == "digits/1"
            words = "ZeroDivisionError: division by zero"
            study = await shown(head)
            (notice,) = study.notices
            # Its author is told where it raised, and how to see all that is wrong with it.
            pattern = (
                f"policy unlucky failed, and fifo decides instead: {words} "
                rf"\({re.escape(str(tmp_path))}/\S+\.py:\d+\); "
                r"try `hermesd policy check unlucky:luck=2\.0`"
            )
            assert re.fullmatch(pattern, notice)
            assert (study.policy.name, study.deciding.name) == ("unlucky", "fifo")
            told = await why(head)
            assert (told.policy, told.notices) == ("fifo (unlucky:luck=2.0 failed)", [notice])
            exported = [
                json.loads(line)
                async for part in head.control.ExportStudy(pb.ExportStudyRequest(study="digits"))
                for line in part.data.splitlines()
            ]
            assert "PolicyFailed" in {line.get("kind") for line in exported}
            node.call.cancel()
    # What its author needs is where it was raised.
    (line,) = [line for line in logged if line["event"].startswith("a policy raised")]
    assert line["study"] == "digits"
    assert traceback.extract_tb(line["exc_info"].__traceback__)[-1].filename.startswith(
        str(tmp_path)
    )


async def test_a_study_whose_policy_works_has_no_other_that_decides(head: World) -> None:
    await head.submit()
    study = await shown(head)
    assert (study.notices, study.HasField("deciding")) == ([], False)


async def test_a_policy_that_claims_nothing_is_told_as_long_as_devices_are_idle(
    tmp_path: Path,
) -> None:
    with lucky_policies(tmp_path):
        async with world(tmp_path / "head") as head:
            await head.submit(spec(schedule=types.Schedule(policy=plugin("idle"))))
            assert (await shown(head)).notices == [], "there is no device"
            node = Node(head, slots=2)
            await node.hello()
            notice = (
                "policy idle claims none of the 4 waiting trials, though box/cpu:0, box/cpu:1"
                " could take them"
            )
            assert (await shown(head)).notices == [notice]
            told = await why(head)
            assert told.summary == "digits/1 is waiting; idle leaves it out of its plan: not now"
            assert [row.words for row in told.ranking] == ["left out: not now"] * 4
            assert told.notices == [notice]
            await head.submit(spec(ONE, name="other"))
            await node.start()
            await node.settle()
            (notice,) = (await shown(head)).notices
            assert notice.endswith("though box/cpu:1 could take them")
            paused = pb.PauseTrialsRequest(request_id="p", selection=pb.Selection(study="digits"))
            await head.control.PauseTrials(paused)
            assert (await shown(head)).notices == [], "a person holds it back"
            node.call.cancel()


async def test_who_is_alone_is_told_of_no_others_who_could_read_their_files(head: World) -> None:
    node = Node(head)
    await node.hello(runs_as_itself=True)
    for name in ("first", "second"):
        answer = await head.submit(spec(ONE, name=name))
        assert not any("other users" in note for note in answer.notes)
    node.call.cancel()
