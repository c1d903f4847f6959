"""What Prometheus is told: documented, with units in the names, and enough for the alarms."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from hermesd.head import metrics
from hermesd.pb.hermes.v1 import node_pb2
from tests.head.heads import Node, world
from tests.head.test_transport import free_port, sampled

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "hermes.rules.yml"
# Of Prometheus itself: whether a scrape came to anything.
PROMETHEUS_OWN = {"up"}
FUNCTIONS = {"histogram_quantile", "increase", "rate", "sum"}
WORDS = {"and", "or", "unless", "by", "on"}
DURATION = re.compile(r"[1-9][0-9]*[smhd]")


def page(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return str(answer.read().decode())


@pytest.fixture
async def families(tmp_path: Path) -> dict[str, tuple[str, str]]:
    """The type and the words of each metric that a head exports."""
    port = free_port()
    async with world(tmp_path, metrics_port=port):
        text = await asyncio.to_thread(page, port)
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    words = dict(re.findall(r"^# HELP (\S+) (.+)$", text, re.MULTILINE))
    assert kinds.keys() == words.keys()
    return {name: (kind, words[name]) for name, kind in kinds.items()}


def samples(families: dict[str, tuple[str, str]]) -> set[str]:
    """The names that an expression may have."""
    parts = ("_bucket", "_sum", "_count")
    return {
        name + part
        for name, (kind, _) in families.items()
        for part in (parts if kind == "histogram" else ("",))
    }


async def test_the_names_keep_to_what_prometheus_asks(
    families: dict[str, tuple[str, str]],
) -> None:
    for name, (kind, words) in families.items():
        assert re.fullmatch(r"hermes_[a-z_]+", name)
        assert words.endswith(".")
        assert name.endswith("_total") == (kind == "counter"), name
        assert kind != "histogram" or name.endswith("_seconds"), name


async def test_each_metric_is_in_the_manual(families: dict[str, tuple[str, str]]) -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `hermes_")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == families.keys()


def names_in(expression: str) -> tuple[set[str], set[str]]:
    """The functions that an expression calls, and the metrics that it reads."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", expression)
    words = set(re.findall(r"[a-zA-Z_]\w*", bare)) - WORDS
    called = set(re.findall(r"([a-zA-Z_]\w*)\s*\(", bare)) - WORDS
    return called, words - called


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load(RULES.read_text())
    assert set(document) == {"groups"}
    (group,) = document["groups"]
    assert set(group) == {"name", "rules"}
    return list(group["rules"])


async def test_the_alarms_can_go_off(families: dict[str, tuple[str, str]]) -> None:
    found = rules()
    known = samples(families) | PROMETHEUS_OWN
    assert len({rule["alert"] for rule in found}) == len(found)
    for rule in found:
        assert set(rule) - {"for"} == {"alert", "expr", "labels", "annotations"}
        called, read = names_in(rule["expr"])
        assert called <= FUNCTIONS, rule["alert"]
        assert read, rule["alert"]
        assert read <= known, rule["alert"]
        ranges = re.findall(r"\[([^\]]*)\]", rule["expr"])
        assert all(map(DURATION.fullmatch, [rule.get("for", "1s"), *ranges])), rule["alert"]
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["expr"].count("(") == rule["expr"].count(")")


async def test_a_nodes_disk_and_the_journals_are_seen(tmp_path: Path) -> None:
    port = free_port()
    async with world(tmp_path, metrics_port=port) as head:
        node = Node(head)
        await node.hello()
        seen = await asyncio.to_thread(sampled, port)
        assert 'hermes_node_disk_used_bytes{node="box"}' not in seen, "it has not said yet"
        disk = node_pb2.DiskUsage(used_bytes=700, budget_bytes=1000, evictions=3)
        await node.say(usage=node_pb2.UsageReport(disk=disk))
        await node.settle()
        seen = await asyncio.to_thread(sampled, port)
        assert seen['hermes_node_disk_used_bytes{node="box"}'] == 700
        assert seen['hermes_node_disk_budget_bytes{node="box"}'] == 1000
        assert seen['hermes_node_disk_evictions_total{node="box"}'] == 3
        transactions = seen["hermes_head_journal_fsync_seconds_count"]
        assert transactions >= seen["hermes_head_commit_seconds_count"] > 0
        taken = seen["hermes_head_journal_fsync_seconds_sum"]
        assert taken > 0
        node.call.cancel()


async def test_who_says_a_byte_now_and_then_keeps_no_scrape_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "SCRAPE_SECONDS", 0.5)
    port = free_port()

    def dripping(ended: threading.Event) -> None:
        with ExitStack() as stack:
            for _ in range(metrics.SCRAPES_AT_ONCE):
                there = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                there.send(b"G")
                connections.append(there)
            begun.set()
            while not ended.wait(0.05):
                for there in connections:
                    with suppress(OSError):
                        there.send(b"x")

    connections: list[socket.socket] = []
    begun, ended = threading.Event(), threading.Event()
    async with world(tmp_path, metrics_port=port):
        thread = threading.Thread(target=dripping, args=(ended,))
        thread.start()
        try:
            await asyncio.to_thread(begun.wait)
            answered = False
            while not answered:  # they are let go, soon
                with suppress(OSError):
                    answered = "hermes_build_info" in await asyncio.to_thread(page, port)
        finally:
            ended.set()
            thread.join()
