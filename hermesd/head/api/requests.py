"""Request ids: each has one effect, however often it is sent, and cannot be used for another
request."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from google.protobuf.message import Message

from hermesd.core.events import Event
from hermesd.core.model import Time, TrialId
from hermesd.core.state import State
from hermesd.head.loop import Compose, Head, PreparedEvent, beside
from hermesd.head.refusals import Reused
from hermesd.head.security.access import Asker
from hermesd.refusal import FieldError, Refused, shown

ID_LIMIT = 128
DIGEST_LETTERS = 16


class Mutation(Protocol):
    """A request that changes something."""

    @property
    def request_id(self) -> str: ...


def key_of(request: Mutation, asker: Asker) -> str:
    """What a request is remembered by: its id, and a digest of what it asks and whose it is.

    Raises Refused.
    """
    assert isinstance(request, Message)
    name = request.request_id
    if not name or len(name) > ID_LIMIT or not name.isprintable():
        expected = f"1 to {ID_LIMIT} printable characters, new for each request"
        raise Refused(FieldError("request_id", shown(name), expected))
    digest = hashlib.sha256(request.DESCRIPTOR.full_name.encode())
    digest.update(request.SerializeToString(deterministic=True))
    if not asker.everything:
        digest.update(f"\0{asker.user}".encode())
    return f"{name}:{digest.hexdigest()[:DIGEST_LETTERS]}"


# What one entry is about at most: it is folded and written in one go, while everybody waits.
PART = 200


def part_key(key: str, number: int) -> str:
    """What a part of a request is remembered by; the first by what the request is."""
    return f"{key[: -DIGEST_LETTERS - 1]}#{number}{key[-DIGEST_LETTERS - 1 :]}" if number else key


async def carry_out_in_parts(
    head: Head,
    key: str,
    trials: Sequence[TrialId],
    compose: Callable[[State, tuple[TrialId, ...], str], Event | None],
) -> tuple[TrialId, ...]:
    """Have an event about each part of many trials composed, under a key of its own, and folded,
    with whatever else there is to do in between; None: nothing is to be done of a part. The trials
    that they are about.

    The same request again does what was not done of it. Raises as `carry_out`.
    """
    beside.set(None)  # that it was done is known at the end
    done: list[TrialId] = []
    for number, start in enumerate(range(0, len(trials), PART)):
        part, some = part_key(key, number), tuple(trials[start : start + PART])
        composed = partial(_composed, compose, some, part)
        with suppress(_Nothing):
            # That the id was used for nothing else was seen with the first.
            done += await (head.change if number else partial(carry_out, head))(part, composed)
    return tuple(done)


class _Nothing(Exception):
    """Nothing is to be done of a part."""


def _composed(
    compose: Callable[[State, tuple[TrialId, ...], str], Event | None],
    trials: tuple[TrialId, ...],
    key: str,
    state: State,
    now: Time,
) -> Event:
    event = compose(state, trials, key)
    if event is None:
        raise _Nothing
    return event


async def carry_out(head: Head, key: str, compose: Compose) -> tuple[TrialId, ...]:
    """Have the event composed and folded once; the trials that it is about.

    Raises Reused if the id was used for something else, and whatever `compose` raises.
    """
    name = key[: -DIGEST_LETTERS - 1]

    def checked(state: State, now: Time) -> Event | PreparedEvent:
        if name in state.named_requests:
            raise Reused(f"request id {shown(name)} was used for another request")
        return compose(state, now)

    return await head.change(key, checked)
