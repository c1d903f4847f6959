"""A node knows its state directory again, and that another one is another."""

from __future__ import annotations

from pathlib import Path

from hermesd.node.machine.identity import disk_of
from tests.node.conftest import Head, Node


def test_a_directory_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    assert disk_of(tmp_path) == disk_of(tmp_path) != disk_of(tmp_path / "other")


async def test_a_node_says_it_with_its_hello(head: Head, node: Node) -> None:
    assert head.hello.disk == disk_of(node.config.state_dir)
