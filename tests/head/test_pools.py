"""Pools of the configuration: what the head does with them, and what it tells people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc

from hermesd.core.events import PoolsConfigured
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.head.heads import Node, status, world
from tests.study_specs import spec

HERMES = {"name": "hermes", "quantum_seconds": 20, "milestones": [50, 75]}
GOLD: dict[str, Any] = {"gold": {"nodes": ["gpu-*"], "policy": HERMES, "placement": "homes"}}


def of_gold(**fields: Any) -> types.StudySpec:
    return spec(pool="gold", **fields)


async def test_a_study_runs_in_its_pool_by_its_policy_and_all_say_so(tmp_path: Path) -> None:
    async with world(tmp_path, pools=GOLD) as head:
        box, gpu = Node(head, "box"), Node(head, "gpu-1")
        await box.hello()
        await gpu.hello()
        submitted = await head.submit(of_gold(name="digits"))
        assert submitted.policy.name == "hermes"
        assert (await gpu.expect("launch")).launch.quantum.seconds == 20
        nodes = (await head.control.ListNodes(pb.ListNodesRequest())).nodes
        assert {node.id: node.pool for node in nodes} == {"box": "default", "gpu-1": "gold"}
        shown = (await head.control.GetStudy(pb.GetStudyRequest(study="digits"))).study
        assert (shown.pool, shown.policy.name, shown.placement.name) == ("gold", "hermes", "homes")
        settings = {each.name: each.value for each in shown.policy.settings}
        assert [item.int_value for item in settings["milestones"].list_value.values] == [50, 75]
        why = await head.control.ExplainTrial(pb.ExplainTrialRequest(trial="digits/1"))
        assert why.policy == "hermes:quantum_seconds=20,milestones=50:75,placement=homes"
        assert list(submitted.notes) == []
        exporting = head.control.ExportStudy(pb.ExportStudyRequest(study="digits"))
        exported = json.loads(b"".join([part.data async for part in exporting]).splitlines()[0])
        assert exported["study"]["policy"]["name"] == "hermes", "what it is run by"


async def test_an_unknown_pool_is_refused_with_the_nearest(tmp_path: Path) -> None:
    async with world(tmp_path, pools=GOLD) as head:
        for fields in ({}, {"validate_only": True}):
            code, words = await status(head.submit(spec(pool="glod"), **fields))
            assert code is grpc.StatusCode.INVALID_ARGUMENT
            assert "pool = glod: expected one of default, gold, own (did you mean gold?)" in words


async def test_what_the_pool_decides_otherwise_and_lacks_is_said(tmp_path: Path) -> None:
    async with world(tmp_path, pools=GOLD) as head:
        schedule = types.Schedule(policy=types.Plugin(name="fifo"))
        checked = await head.submit(of_gold(schedule=schedule), validate_only=True)
        assert list(checked.notes) == [
            "schedule.policy was not used: the pool gold has the policy hermes",
            "no device is attached now in the pool gold",
        ]
        assert checked.policy.name == "hermes"
        await Node(head, "gpu-1").hello()
        asked = of_gold(resources=types.Resources(device_kind="H200"))
        (note,) = (await head.submit(asked, validate_only=True)).notes
        assert note.startswith("there is no device of kind H200 (there: cpu")
        assert note.endswith(" in the pool gold: its trials wait")
        asked = of_gold(resources=types.Resources(memory_bytes=1 << 50))
        (note,) = (await head.submit(asked, validate_only=True)).notes
        assert note.startswith("there is no device with 1048576.0 GiB of memory (the largest has ")


async def test_a_pool_that_is_gone_makes_its_studies_wait_until_it_is_back(tmp_path: Path) -> None:
    async with world(tmp_path, pools=GOLD) as head:
        await head.submit(of_gold(name="digits"))
    async with world(tmp_path) as head:
        await Node(head, "gpu-1").hello()
        why = await head.control.ExplainTrial(pb.ExplainTrialRequest(trial="digits/1"))
        assert "its pool gold is no longer in the head's configuration" in why.summary
        assert (await head.trial("digits/1")).state == types.TRIAL_STATE_WAITING
    async with world(tmp_path, pools=GOLD) as head:
        node = Node(head, "gpu-1")
        await node.hello(boot_id="boot-2")
        assert (await node.expect("launch")).launch.trial == "digits/1"
        lines = await head.running.head.journal.read(0)
        configured = [line for line in lines if isinstance(line.entry, PoolsConfigured)]
        assert len(configured) == 3, "once for each start with other pools"
