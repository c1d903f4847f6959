"""What the author of a study is told of it."""

from __future__ import annotations

from pathlib import Path

from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.pb.hermes.v1 import types_pb2 as types
from tests.head.heads import Node, World, world
from tests.study_specs import spec

MISSPELT = types.Signal(name="losss")
ONE = {"lr": {"value": 0.1}}


async def shown(head: World, study: str = "digits") -> pb.Study:
    """The study, which is the same wherever it is asked for."""
    one = (await head.control.GetStudy(pb.GetStudyRequest(study=study))).study
    listed = (await head.control.ListStudies(pb.ListStudiesRequest())).studies
    assert list(one.notices) == next(list(s.notices) for s in listed if s.id == study)
    return one


async def test_a_signal_that_nobody_reports_is_told_and_what_is_reported(tmp_path: Path) -> None:
    async with world(tmp_path / "head") as head:
        node = Node(head)
        await node.hello()
        await head.submit(spec(ONE, signal=MISSPELT))
        launch = await node.start()
        await node.settle()
        assert (await shown(head)).notices == [], "nothing was reported yet"
        await node.report(launch, 1, [3.0, 2.0], chunks=False, acc=0.5)
        await node.settle()
        study = await shown(head)
        reported = "; reported: acc, loss (did you mean loss?)"
        assert study.notices == [f"signal losss was not reported so far{reported}"]
        assert study.reported == ["acc", "loss"]
        await node.complete(launch, 2)
        await node.settle()
        assert (await shown(head)).notices == [f"signal losss was never reported{reported}"]
        node.call.cancel()


async def test_a_signal_that_is_reported_is_no_news(tmp_path: Path) -> None:
    async with world(tmp_path / "head") as head:
        node = Node(head)
        await node.hello()
        await head.submit(spec(ONE))
        await node.report(await node.start(), 1, [3.0, 2.0])
        await node.settle()
        study = await shown(head)
        assert (study.notices, study.reported) == ([], ["loss"])
        node.call.cancel()


async def test_a_signal_that_the_very_same_program_never_reported_is_told_before_it_runs(
    tmp_path: Path,
) -> None:
    script, other = "a" * 64, "b" * 64
    async with world(tmp_path / "head") as head:
        node = Node(head)
        await node.hello()
        await head.submit(spec(ONE), program_sha256=script)
        launch = await node.start()
        await node.report(launch, 1, [3.0, 2.0])

        async def notes(sha256: str, signal: str) -> list[str]:
            wanted = spec(ONE, name="new", signal=types.Signal(name=signal))
            checked = await head.submit(wanted, program_sha256=sha256, validate_only=True)
            return [note for note in checked.notes if "signal" in note]

        await node.settle()
        assert await notes(script, "losss") == [], "it goes on, and may report it yet"
        await node.complete(launch, 2)
        await node.settle()
        assert await notes(script, "losss") == [
            "signal losss was never reported by this program (digits); reported: loss"
            " (did you mean loss?)"
        ]
        assert await notes(script, "loss") == await notes(other, "losss") == []
        assert await notes("", "losss") == []
        node.call.cancel()
