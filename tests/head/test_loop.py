"""One batch, one decision, one transaction; whatever breaks that ends the head."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import grpc
import pytest

from hermesd.core.commands import Launch
from hermesd.core.events import Cancelled, NodeJoined, NodeSilent, Submitted
from hermesd.core.invariants import InvariantBroken
from hermesd.core.state import State
from hermesd.head import loop
from hermesd.head.clock import Clock
from hermesd.head.journal import outcomes, schema
from hermesd.head.journal import replay as snapshot
from hermesd.head.journal import replay as snapshots
from hermesd.head.journal.repair import repair
from hermesd.head.journal.replay import replay
from hermesd.head.journal.store import JournalBroken, opened
from hermesd.head.loop import ReadOnly
from hermesd.head.statedir import StateRefused
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import node_pb2
from tests.core.playbook import checkpointed, play, started
from tests.head.heads import Node, World, request_id, status, world
from tests.study_specs import spec

CODE = grpc.StatusCode
ONE = {"lr": {"value": 1.0}}


async def lived(head: World) -> None:
    """A node, a study of four, a trial that ran to its end and one in the middle."""
    node = Node(head, slots=2)
    await node.hello()
    await head.submit()
    for _ in range(2):
        launch = await node.start()
        await node.report(launch, 1, [0.5, 0.4])
    await node.complete(launch)
    await node.start()
    await node.settle()
    node.call.cancel()
    while head.state.nodes["box"].connected:
        await head.running.head.beyond(head.running.head.committed)


def tables(state: State) -> dict[str, list[tuple[object, object]]]:
    """What decides about the state, in its order; `dirty`, `ended` are the scheduler's own."""
    taken = snapshot.taken(state).tables
    return {name: items for name, items in taken.items() if name not in ("dirty", "ended")}


def edit(directory: Path, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(directory / schema.NAME)) as connection:
        connection.execute(sql, values)
        connection.commit()


def rewrite(directory: Path, seq: int, **columns: object) -> None:
    """Change a row and make its checksum agree."""
    with closing(sqlite3.connect(directory / schema.NAME)) as connection:
        row = connection.execute(
            "SELECT seq, at, kind, body, outcome FROM journal WHERE seq = ?", (seq,)
        ).fetchone()
        fields = dict(zip(("seq", "at", "kind", "body", "outcome"), row, strict=True)) | columns
        connection.execute(
            "UPDATE journal SET kind = ?, body = ?, crc = ? WHERE seq = ?",
            (fields["kind"], fields["body"], schema.checksum(*fields.values()), seq),
        )
        connection.commit()


async def test_a_replay_gives_the_state_back(tmp_path: Path) -> None:
    async with world(tmp_path) as head:
        await lived(head)
        before = tables(head.state)
    async with opened(tmp_path) as journal:
        again = (await replay(journal)).state
    assert tables(again) == before
    assert again.now > 0


async def test_a_snapshot_gives_the_same_state_as_the_whole_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "ENTRIES", 5)
    monkeypatch.setattr(snapshot, "PART_ITEMS", 2)
    async with world(tmp_path) as head:
        await lived(head)
        while (saved := await head.running.head.journal.load_snapshot(snapshot.shape())) is None:
            await head.control.ServerInfo(pb.ServerInfoRequest())
        before = tables(head.state)
        assert saved.seq >= 5
    async with opened(tmp_path) as journal:
        cached = await replay(journal)
        assert cached.snapshot_seq > 0
        assert tables(cached.state) == before
    edit(tmp_path, "DELETE FROM snapshot")
    async with opened(tmp_path) as journal:
        whole = await replay(journal)
        assert whole.snapshot_seq == 0
        assert tables(whole.state) == tables(cached.state)


async def test_snapshots_bound_what_a_restart_reads_and_are_saved_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "ENTRIES", 4)
    monkeypatch.setattr(snapshots, "BYTES", 1_000)
    small = Cancelled((), "r")
    large = Cancelled(("x" * 1_000,), "r")
    async with opened(tmp_path) as journal:
        kept = snapshots.Snapshots(journal, 0)
        await journal.append([(0.0, small, "")] * 3)
        assert not kept.due(journal.last)
        await journal.append([(0.0, small, "")])
        assert kept.due(journal.last)
        saving = kept.take(State(), journal.last)
        await journal.append([(0.0, large, "")])
        assert not kept.due(journal.last)
        await saving
        saved = await journal.load_snapshot(snapshot.shape())
        assert saved is not None
        assert saved.seq == 4
        # One entry, but as long as many.
        assert kept.due(journal.last)
        await kept.take(State(), journal.last)
        assert not kept.due(journal.last)


def test_a_snapshot_leaves_no_table_out() -> None:
    scalars = {"now", "half_life_seconds"}
    indexes = {"copies", "riding", "named_requests", "in_service"}
    assert set(snapshot.TABLES) == set(vars(State())) - scalars - indexes


def test_the_indexes_are_made_anew_from_a_snapshot() -> None:
    book = play(replicas=1).tell(started("s/0#1"), checkpointed("s/0#1", 9))
    kept = snapshot.read(tuple(snapshot.write(snapshot.taken(book.state))))
    assert kept.copies == book.state.copies
    assert kept.named_requests == book.state.named_requests != {}
    assert kept.copies.wanting == {"n": {"s/0": None}}
    assert kept.in_service == book.state.in_service != {}


async def test_an_event_and_the_commands_that_follow_are_one_transaction(
    head: World, node: Node
) -> None:
    await head.submit(spec(ONE))
    lines = await head.running.head.journal.read(0)
    assert [type(line.entry) for line in lines] == [NodeJoined, Submitted, Launch]
    assert lines[1].at == lines[2].at


async def test_reports_wait_for_others_and_for_nothing_that_is_urgent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "GATHER_SECONDS", 1e6)
    async with world(tmp_path) as head:
        node, counters = Node(head), head.running.head.counters
        await node.hello()
        await head.submit(spec(ONE))
        launch = await node.start()
        await node.settle()
        before = counters.batches
        await node.report(launch, 1, [0.5])
        await node.report(launch, 2, [0.4])
        await node.complete(launch)
        await node.settle()
        assert counters.batches == before + 1
        assert head.state.trials["digits/1"].curve[-1].last_step == 2
        node.call.cancel()


async def test_times_never_decrease_even_if_the_wall_clock_does(tmp_path: Path) -> None:
    ticks = [10.0]
    clock = Clock(after=5_000.0, wall=lambda: 4_000.0, ticks=lambda: ticks[0])
    assert clock() == 5_000.0
    ticks[0] += 2.5
    assert clock() == 5_002.5
    assert Clock(after=0.0, wall=lambda: 4_000.0, ticks=lambda: 1.0)() == 4_000.0


async def test_a_node_is_lost_when_its_time_is_out_and_nobody_calls(
    head: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(head)
    await node.hello()
    node.call.cancel()
    while head.state.nodes["box"].connected:
        await head.running.head.beyond(head.running.head.committed)
    known = head.running.head.clock
    monkeypatch.setattr(head.running.head, "clock", lambda: known() + 10_000)
    head.running.head.push(NodeSilent("box", "a reason to look at the clock"))
    while head.state.nodes["box"].boot_id:
        await head.running.head.beyond(head.running.head.committed)


async def test_a_broken_journal_ends_the_head_and_the_caller_is_to_ask_again(
    tmp_path: Path,
) -> None:
    answers = []

    async def life() -> None:
        async with world(tmp_path) as head:
            await head.submit()
            head.running.head.journal._last = 0
            answers.append(await status(head.submit(again=True)))
            await asyncio.Event().wait()

    with pytest.raises(JournalBroken, match="a commit failed"):
        await life()
    # The head may be gone before its answer is.
    assert {code for code, _ in answers} <= {CODE.UNAVAILABLE}
    async with world(tmp_path) as head:
        assert list(head.state.studies) == ["digits"]


async def test_a_state_that_contradicts_itself_ends_the_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "CHECK_SECONDS", 0.0)

    async def life() -> None:
        async with world(tmp_path) as head:
            await head.submit()
            trials = head.state.trials
            trials["digits/1"], trials["digits/2"] = trials["digits/2"], trials["digits/1"]
            await asyncio.Event().wait()

    with pytest.raises(InvariantBroken, match="filed under another name"):
        await life()


async def test_a_defect_in_composing_is_the_callers_alone(head: World) -> None:

    def broken(state: State, now: float) -> Submitted:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await head.running.head.change("r1:x", broken)
    await head.submit()


async def test_an_entry_that_cannot_be_folded_makes_the_head_read_only(tmp_path: Path) -> None:
    async with world(tmp_path) as head:
        await lived(head)
        seq = next(
            line.seq
            for line in await head.running.head.journal.read(0)
            if isinstance(line.entry, Launch)
        )
    rewrite(tmp_path, seq, kind="NodeLost", body='{"node":"nobody"}')
    async with world(tmp_path) as head:
        info = await head.control.ServerInfo(pb.ServerInfoRequest())
        assert info.read_only
        assert info.read_only_reason == f"entry {seq} cannot be folded: no node 'nobody'"
        assert (await head.control.GetStudy(pb.GetStudyRequest(study="digits"))).trials
        stop = pb.StopTrialsRequest(request_id=request_id(), selection=pb.Selection(study="digits"))
        assert (await status(head.control.StopTrials(stop)))[0] is CODE.FAILED_PRECONDITION
        assert (await status(Node(head).hello()))[0] is CODE.FAILED_PRECONDITION
        with pytest.raises(ReadOnly):
            await head.running.head.tell(NodeSilent("box", ""))


async def test_an_unknown_kind_keeps_the_head_from_starting(tmp_path: Path) -> None:
    async with world(tmp_path) as head:
        await head.submit()
    rewrite(tmp_path, 1, kind="Teleported")
    content = (tmp_path / schema.NAME).read_bytes()
    with pytest.raises(StateRefused, match=r"entry 1: unknown kind 'Teleported'.*--repair"):
        async with world(tmp_path):
            pass
    assert (tmp_path / schema.NAME).read_bytes() == content


async def test_missing_entries_keep_the_head_from_starting(tmp_path: Path) -> None:
    async with world(tmp_path) as head:
        await lived(head)
    edit(tmp_path, "DELETE FROM journal WHERE seq IN (2, 3)")
    with pytest.raises(StateRefused, match="entries 2 to 3 are missing"):
        async with world(tmp_path):
            pass


# Repair.


async def test_repair_changes_nothing_where_nothing_is_wrong(tmp_path: Path) -> None:
    async with world(tmp_path) as head:
        await lived(head)
    content = (tmp_path / schema.NAME).read_bytes()
    done = repair(tmp_path)
    assert (done.aside, done.folder) == ([], None)
    assert done.kept > 5
    assert (tmp_path / schema.NAME).read_bytes() == content
    with pytest.raises(FileNotFoundError, match="no journal to repair"):
        repair(tmp_path / "blobs")


async def test_repair_sets_an_unknown_entry_aside_and_names_it(tmp_path: Path) -> None:
    async with world(tmp_path) as head:
        await head.submit()
        await head.submit(spec(name="other"))
    content = (tmp_path / schema.NAME).read_bytes()
    rewrite(tmp_path, 1, kind="Teleported")
    done = repair(tmp_path)
    assert [(number, why) for number, why, _ in done.aside] == [
        (1, "entry 1: unknown kind 'Teleported': written by a newer version, or damaged")
    ]
    assert done.folder is not None
    assert len((done.folder / schema.NAME).read_bytes()) == len(content)
    assert "Teleported" in (done.folder / "entries.jsonl").read_text()
    async with world(tmp_path) as head:
        assert list(head.state.studies) == ["other"]
        assert (await head.submit()).study == "digits"


@pytest.mark.parametrize("damage", ["page", "short", "empty", "noise"])
async def test_repair_keeps_what_can_be_read_and_every_byte_of_the_rest(
    tmp_path: Path, damage: str
) -> None:
    async with world(tmp_path) as head:
        for cap in (1, 2, 3):
            await head.submit(spec(run_cap=cap))
        node = Node(head)
        await node.hello()
        launch = await node.start()
        for step in range(300):
            await node.report(launch, step, [0.5])
        await node.settle()
        node.call.cancel()
    path = tmp_path / schema.NAME
    content = bytearray(path.read_bytes())
    match damage:
        case "page":
            late = content.index(b'"step":200,') // 4096 * 4096
            content[late : late + 4096] = b"\xa5" * 4096
        case "short":
            del content[-20 * 4096 :]
        case "empty":
            content.clear()
        case "noise":
            content = bytearray(b"nothing of a database" * 999)
    path.write_bytes(content)
    with pytest.raises(StateRefused, match="--repair"):
        async with world(tmp_path):
            pass
    done = repair(tmp_path)
    assert done.aside
    assert done.folder is not None
    assert (done.folder / schema.NAME).read_bytes() == bytes(content)
    async with world(tmp_path) as head:
        assert head.running.head.fault == ""
        assert bool(head.state.studies) == (damage in ("page", "short"))
        await head.submit(again=True)


# Outcomes.


async def test_what_an_entry_ended_stands_beside_it(head: World, node: Node) -> None:
    await head.submit(spec(run_cap=2))
    launch = await node.start()
    await node.complete(launch)
    await node.settle()
    stop = pb.StopTrialsRequest(request_id=request_id(), selection=pb.Selection(study="digits"))
    await head.control.StopTrials(stop)
    running = (await node.expect("stop")).stop
    await node.say(run_suspended=node_pb2.RunSuspended(trial=running.trial, attempt=1, tier=3))
    await node.settle()
    lines = await head.running.head.journal.read(0)
    told = [outcomes.read(line.outcome) for line in lines if line.outcome]
    assert told == [
        (outcomes.JournalOutcome("digits/1", "completed", "no metric seen"),),
        (
            outcomes.JournalOutcome("digits/2", "cancelled", "stopped by a person"),
            outcomes.JournalOutcome("digits", "finished"),
        ),
    ]
