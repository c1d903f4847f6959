"""Arguments of the SDK that can't be meant: each is a UsageError that names it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermesctl import Client, UsageError
from hermesd.pb.hermes.v1 import control_pb2 as pb
from tests.hermesctl.fake_head import FakeHead, trial

MISUSES: dict[str, tuple[Callable[[Any], object], str]] = {
    "a huge count": (lambda c: c.best("digits", 10**12), "count: 10+: expected a whole number of"),
    "half a trial": (
        lambda c: c.best("digits", 2.5),
        r"count: 2\.5: expected a whole number of 32",
    ),
    "a huge number": (lambda c: next(c.events(after=2**70)), r"after: \d+: .* of 64 bits"),
    "a number as study": (lambda c: c.study(3), "study: 3: expected a study or its id"),
    "no study": (lambda c: c.remove(None), "study: None: expected a study or its id"),
    "no name": (lambda c: c.follow("").__next__(), "study: expected a study or its id"),
    "a number as trial": (lambda c: c.trial(3), "trial: 3: expected a trial or its id"),
    "a study as trial": (lambda c: next(c.logs(None)), "trial: None: expected a trial or its id"),
    "half a character": (lambda c: c.study("\ud800"), r"study: .*: expected text in UTF-8"),
    "half a target": (lambda c: c.stop("\ud800"), r"study: .*: expected text in UTF-8"),
    "a far offset": (lambda c: next(c.logs("digits/1", offset=1 << 63)), "offset: .* of 64 bits"),
    "a metric": (lambda c: c.curve("digits/1", 3), "metric: 3: expected text in UTF-8"),
    "no destination": (
        lambda c: c.download_checkpoint("digits/1", None),
        "destination: None: expected a path",
    ),
    "nothing to submit": (lambda c: c.submit(None), "study: None: expected a path"),
    "a NUL": (lambda c: c.submit("a\0b.yaml"), "study: .*: expected a path without NUL"),
    "a directory": (
        lambda c: c.submit({"program": "train.py"}, directory=3),
        "directory: 3: expected a path",
    ),
    "half a name": (lambda c: c.submit({"name": "\ud800"}), "name: .*: expected characters"),
    "half a key": (
        lambda c: c.submit({"parameters": {"\ud800": {"value": 1}}}),
        "parameters: .*: expected keys that are characters",
    ),
    "half a script": (lambda c: c.submit("\udcff.py"), "program: .*: expected characters"),
    "a number in the environment": (
        lambda c: c.submit("train.py", environment={"A": 1}),
        r"environment\.A: 1: expected text in UTF-8",
    ),
}


@pytest.mark.parametrize(("call", "words"), MISUSES.values(), ids=MISUSES)
def test_what_cannot_be_meant_is_an_error_of_ours(
    head: FakeHead,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[Client], object],
    words: str,
) -> None:
    head.add_study("digits", trial(1))
    monkeypatch.chdir(project)
    (project / "\udcff.py").touch()
    with Client() as client, pytest.raises(UsageError, match=words) as caught:
        call(client)
    assert str(caught.value).isprintable()
    assert not head.of(pb.SubmitStudyRequest)
