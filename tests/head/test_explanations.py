"""Why a trial runs or waits: every policy's order, in its own words."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import node_pb2
from hermesd.pb.hermes.v1 import types_pb2 as types
from hermesd.policy import POLICIES
from tests.head.heads import Node, World, world
from tests.study_specs import plugin, spec

# What each policy says of the trial that has had its turn.
WORDS = {
    "asha": "rung 0 (step 7), loss 3.267",
    "best_first": "loss 0.8709",
    "best_first_scaled": "loss 0.8709, at first 3.267",
    "fifo": "number 1 in its study",
    "flowcon": "growth efficiency 7.33",
    "guided": "loss 0.8709",
    "hermes": "loss falls by 0.611 an iteration",
    "hyperband": "bracket 1 of 4: rung 1 (step 12), loss 0.8709",
    "median": "lowest loss 3.267 by step 10",
    "optimus": "trains, about 7.33 s left",
    "optimus_width1": "trains, about 7.33 s left",
    "pasha": "rung 0 (step 7), loss 3.267",
    "pbt": "ready at step 1000",
    "round_robin": "turns so far: 1",
    "slaq": "loss 0.8709",
    "successive_halving": "rung 1 (step 12), loss 0.8709",
    "themis": "8.3 s alone",
    "tiresias": "queue 0 of 3, served 1.0 s",
}
STAYS = {"fifo", "median", "pbt", "tiresias"}


async def explained(directory: Path, policy: str) -> pb.ExplainTrialResponse:
    """What is said of the first trial launched of four, which has had a turn of twelve of its
    hundred iterations."""
    async with world(directory) as head:
        node = Node(head)
        await node.hello()
        await head.submit(spec(schedule=types.Schedule(policy=plugin(policy))))
        launch = (await node.expect("launch")).launch
        run = {"trial": launch.trial, "attempt": launch.attempt}
        started = node_pb2.RunStarted(**run, start_seconds=0.1, planned_steps=100)
        await node.say(run_started=started)
        for first in (1, 7):
            await node.report(launch, first, [8.0 / step for step in range(first, first + 6)])
        await node.say(quantum_ended=node_pb2.QuantumEnded(**run, step=12))
        await node.settle()
        told = await head.control.ExplainTrial(pb.ExplainTrialRequest(trial=launch.trial))
        node.call.cancel()
        return told


@pytest.mark.parametrize("policy", sorted(POLICIES))
async def test_every_policy_says_who_goes_first_and_why(policy: str, tmp_path: Path) -> None:
    told = await explained(tmp_path, policy)
    assert (told.policy, len(told.ranking)) == (policy, 4)
    first, runners_up = told.ranking[0], [each.trial for each in told.ranking[1:]]
    mine = next(each for each in told.ranking if each.trial == told.trial)
    assert mine.words == WORDS[policy]
    assert told.summary.endswith(f"of 4: {WORDS[policy]}")
    # Who is ranked first has the device or gets it, and the last decision says so in the
    # policy's words.
    if policy in STAYS:
        assert (first.trial, first.state) == (told.trial, types.TRIAL_STATE_RUNNING)
        assert told.last_decision == f"kept its device: still best: {first.words}"
    else:
        assert told.trial == runners_up[-1]
        assert mine.state == types.TRIAL_STATE_SUSPENDING
        assert f"device back: {first.trial} goes first: " in told.last_decision
        assert first.words.endswith(told.last_decision.split("goes first: ")[1])
    assert all(each.words for each in told.ranking)


async def test_a_trial_that_keeps_its_device_for_now_is_first_in_a_plan(
    head: World, node: Node
) -> None:
    asha = types.Schedule(policy=plugin("asha"))
    await head.submit(spec(schedule=asha))
    launch = await node.start()
    await node.settle()
    told = await head.control.ExplainTrial(pb.ExplainTrialRequest(trial="digits/2"))
    assert [each.trial for each in told.ranking][:2] == [launch.trial, "digits/2"]
    assert told.ranking[0].words == "step 0, first rung at 20"
    assert told.ranking[1].words == "below the first rung: step 0, first rung at 20"


async def why(head: World, trial: str) -> pb.ExplainTrialResponse:
    return await head.control.ExplainTrial(pb.ExplainTrialRequest(trial=trial))


async def test_who_asks_why_is_told_of_earlier_studies(head: World, node: Node) -> None:
    await head.submit(spec())
    said = (await why(head, "digits/1")).earlier_studies
    assert said.startswith("none: when this study began, none of its owner's with the same")


async def test_a_waiting_trial_is_told_who_has_the_devices(head: World, node: Node) -> None:
    one = {"lr": {"value": 1.0}}
    await head.submit(spec(name="long"))
    await node.start()
    await node.settle()
    await head.submit(spec(one, name="sdk"))
    await head.submit(spec(one, name="gpus", resources=types.Resources(device_kind="gpu")))
    assert (await why(head, "sdk/1")).summary == (
        "sdk/1 is waiting; best_first ranks it 1 of 1: not probed yet;"
        " box/cpu:0 has long/1 (of study long)"
    )
    told = (await why(head, "long/2")).summary
    assert told.endswith("; box/cpu:0 has long/1 (of its own study)")
    assert "has long" not in (await why(head, "long/1")).summary, "it runs"
    assert "has long" not in (await why(head, "gpus/1")).summary, "it would not run there"
    listed = (await head.control.ListStudies(pb.ListStudiesRequest())).studies
    waits = {study.id: study.waits_for for study in listed}
    assert waits == {"long": "", "sdk": "box/cpu:0 has long/1 (of study long)", "gpus": ""}
    asked = pb.GetStudyRequest(study="sdk")
    assert (await head.control.GetStudy(asked)).study.waits_for == waits["sdk"]
    held = pb.PauseTrialsRequest(request_id="p", selection=pb.Selection(study="sdk"))
    await head.control.PauseTrials(held)
    assert not (await head.control.GetStudy(asked)).study.waits_for


async def test_studies_share_devices_as_the_documentation_says(head: World) -> None:
    """The study with the fewest devices has the next turn; of equals, whose last is longest ago."""
    node = Node(head, slots=2)
    await node.hello()
    await head.submit(spec(name="first"))
    launches = [await node.start(), await node.start()]
    await node.settle()
    await head.submit(spec(name="second"))
    one, other = ({"trial": each.trial, "attempt": each.attempt} for each in launches)
    await node.report(launches[0], 1, [2.0, 1.0])
    await node.say(quantum_ended=node_pb2.QuantumEnded(**one, step=2))
    assert (await node.expect("suspend")).suspend.successor == "second/1"
    await node.say(run_suspended=node_pb2.RunSuspended(**one, tier=types.TIER_PARK, step=2))
    second = await node.start()
    assert second.trial == "second/1"
    await node.report(launches[1], 1, [2.0, 1.0])
    await node.say(quantum_ended=node_pb2.QuantumEnded(**other, step=2))
    assert (await node.expect("suspend")).suspend.successor.startswith("first/")
    node.call.cancel()


async def test_studies_have_the_only_device_in_turn(head: World, node: Node) -> None:
    await head.submit(spec(name="first"))
    launch = await node.start()
    await node.settle()
    await head.submit(spec(name="second"))
    run = {"trial": launch.trial, "attempt": launch.attempt}
    await node.report(launch, 1, [2.0, 1.0])
    await node.say(quantum_ended=node_pb2.QuantumEnded(**run, step=2))
    suspend = (await node.expect("suspend")).suspend
    assert suspend.trial == "first/1"
    await node.say(run_suspended=node_pb2.RunSuspended(**run, tier=types.TIER_PARK, step=2))
    assert (await node.expect("launch")).launch.trial == "second/1"
