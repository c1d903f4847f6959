"""A head for each test, and a node of one device."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.head.heads import Node, World, world


@pytest.fixture
async def head(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as up:
        yield up


@pytest.fixture
async def node(head: World) -> AsyncIterator[Node]:
    node = Node(head)
    await node.hello()
    yield node
    node.call.cancel()
