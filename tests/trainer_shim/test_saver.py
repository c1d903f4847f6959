"""Which checkpoint is written when several are asked for."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from trainer_shim import checkpoint_dir
from trainer_shim.channel.agent_channel import AgentChannel
from trainer_shim.channel.frames import receive
from trainer_shim.saver import Saver


class Progress:
    """Progress whose file has these parts."""

    def __init__(self, parts: Iterable[bytes]) -> None:
        self._parts = parts

    def prepare(self, builder: checkpoint_dir.Builder) -> None:
        """Nothing."""

    def write(self, builder: checkpoint_dir.Builder) -> None:
        """Write the parts."""
        builder.add("state", self._parts)


def test_a_suspend_waits_for_no_checkpoint_in_the_background(tmp_path: Path) -> None:
    """However long it would take: the suspend's own is a later one."""
    lacks: list[str | None] = []
    ours, hosts = socket.socketpair()
    with ours, hosts:
        saver = Saver(AgentChannel(ours), str(tmp_path), lacks.append)
        saver.save("first", lambda: Progress([b"f"]), {"step": 0}, wait=False)
        assert (receive(hosts) or {})["id"] == "first"
        endless = itertools.repeat(b"x")
        saver.save("durable", lambda: Progress(endless), {"step": 1}, wait=False)
        saver.save("suspend", lambda: Progress([b"y"]), {"step": 2}, wait=True)
        said = [receive(hosts) or {}, receive(hosts) or {}]
    assert [(each["kind"], each["id"]) for each in said] == [
        ("checkpoint_failed", "durable"),
        ("checkpointed", "suspend"),
    ]
    assert {each.name for each in tmp_path.iterdir()} == {"first", "suspend"}
    assert checkpoint_dir.verify(str(tmp_path / "suspend"))["step"] == 2
    assert lacks == [None, None], "nothing is lacking"


def test_a_suspend_waits_for_the_first_checkpoint_of_all(tmp_path: Path) -> None:
    """Should it come to its deadline, the trial goes on from there."""
    begun = threading.Event()

    def parts() -> Iterator[bytes]:
        for _ in range(50_000):
            yield b"x"
            begun.set()

    ours, hosts = socket.socketpair()
    with ours, hosts:
        saver = Saver(AgentChannel(ours), str(tmp_path), lambda why: None)
        saver.save("durable", lambda: Progress(parts()), {"step": 1}, wait=False)
        begun.wait()
        saver.save("suspend", lambda: Progress([b"y"]), {"step": 2}, wait=True)
        said = [receive(hosts) or {}, receive(hosts) or {}]
    assert [each["id"] for each in said] == ["durable", "suspend"]
    assert {each["kind"] for each in said} == {"checkpointed"}


def test_what_is_saved_in_the_background_follows_what_was(tmp_path: Path) -> None:
    ours, hosts = socket.socketpair()
    with ours, hosts:
        saver = Saver(AgentChannel(ours), str(tmp_path), lambda why: None)
        for step, name in enumerate(["one", "two"]):
            saver.save(name, lambda: Progress([b"y" * 5_000_000]), {"step": step}, wait=False)
        saver.join()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["one", "two"]
