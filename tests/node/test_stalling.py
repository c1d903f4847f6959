"""A node that does not give what it has costs those who ask a while, not their turns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from hermesd.core.events import RunFailed
from hermesd.core.model import Checkpoint, RunId
from hermesd.node.storage import fetching
from hermesd.node.storage.fetching import Fetching, NotFetched
from hermesd.pb.hermes.v1 import transfer_pb2 as pb
from tests.node.conftest import Head, Node
from tests.node.test_fetching import TRIAL, Giver, Liar, giver

KNOWN = Checkpoint(f"{TRIAL}@s5", TRIAL, 1, 5, "", 1, ("liar",))
__all__ = ["giver"]


class Mute(Liar):
    """Takes every question, and answers none."""

    def __init__(self) -> None:
        super().__init__(b"")

    async def Fetch(
        self, request: pb.FetchRequest, context: Any
    ) -> AsyncIterator[pb.FetchResponse]:
        self.asked.append(request.file)
        await self.silent.wait()
        yield pb.FetchResponse()

    async def Doubt(self, request: pb.DoubtRequest, context: Any) -> pb.DoubtResponse:
        await self.silent.wait()
        return pb.DoubtResponse()


async def test_who_does_not_begin_is_given_up_for_the_next_who_has_it(
    giver: Giver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both have so long: the other one does begin by then, on a busy machine, too.
    monkeypatch.setattr(fetching, "BEGIN_SECONDS", 5.0)
    mute, taker = Mute(), Fetching(None)
    async with mute.at(tmp_path / "mute.sock") as source:
        sources = (source, giver.source())
        with structlog.testing.capture_logs() as said:
            await taker.bring(giver.checkpoint, sources, tmp_path / "b")
        assert (tmp_path / "b" / "s5").is_dir()
        assert [(each["event"], each.get("reason")) for each in said] == [
            ("a node stalls", "nothing came in 5 s"),
            ("checkpoint fetched", None),
        ]
        await taker.bring(giver.checkpoint, sources, tmp_path / "c")
        assert mute.asked == ["manifest.json"], "others are asked before it for a while"


async def test_where_nobody_begins_the_way_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "BEGIN_SECONDS", 0.1)
    async with Mute().at(tmp_path / "mute.sock") as source:
        with pytest.raises(NotFetched, match=r"liar at unix:.*: nothing came in 0\.1 s") as caught:
            await Fetching(None).bring(KNOWN, (source,), tmp_path / "b")
    assert caught.value.way


async def test_a_checkpoint_of_many_files_gives_no_longer_to_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node may make a checkpoint of as many files as it likes."""
    monkeypatch.setattr(fetching, "PATIENCE_SECONDS", 0.05)
    files = {f"f{each}": {"bytes": 1, "sha256": ""} for each in range(5_000)}
    liar = Liar(json.dumps({"step": 5, "files": files}).encode())
    liar.silent.set()
    async with liar.at(tmp_path / "liar.sock") as source:
        with pytest.raises(NotFetched, match=r"less than 1048576 bytes came in 0\.05 s"):
            await Fetching(None).bring(KNOWN, (source,), tmp_path / "b")
    assert len(liar.asked) < len(files)


async def test_who_gives_what_is_not_whole_is_not_waited_for_to_look_at_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Damaging(Mute):
        Fetch = Liar.Fetch

    monkeypatch.setattr(fetching, "BEGIN_SECONDS", 2.0)
    damaging = Damaging()
    damaging.manifest = b"[]"
    async with damaging.at(tmp_path / "liar.sock") as source, asyncio.timeout(60):
        with pytest.raises(NotFetched, match="could not be had"):
            await Fetching(None).bring(KNOWN, (source,), tmp_path / "b")


async def test_a_launch_that_waits_for_such_a_node_is_no_strike_against_its_device(
    head: Head,
    node: Node,
    launch: Callable[..., RunId],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetching, "BEGIN_SECONDS", 0.1)
    async with Mute().at(tmp_path / "mute.sock") as source:
        run = launch(checkpoint=KNOWN, sources=(source,))
        failed = await head.hears(RunFailed, run, 0)
    assert failed.error_kind == "not_fetched"
    assert "nothing came in 0.1 s" in failed.detail
