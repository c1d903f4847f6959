"""Where a trial fits: by the memory that it was seen to take, and where it ran out of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hermesd.core.events import NodeJoined, RunFailed
from hermesd.core.model import (
    OUT_OF_DEVICE_MEMORY,
    Phase,
    Plugin,
    RetryAction,
    RetryRule,
    ruled,
)
from tests.core.playbook import (
    Playbook,
    completed,
    joined,
    parked,
    play,
    quantum_ended,
    reported,
    run,
    started,
    submitted,
    written,
)

GIB = 1 << 30
CUDA = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
KILLED = "killed by the kernel: out of memory"


def starved(name: str, detail: str = CUDA, step: int = 0) -> RunFailed:
    return RunFailed(run(name), "exception", detail, CUDA, step)


def killed(name: str) -> RunFailed:
    return RunFailed(run(name), "out_of_memory", KILLED, KILLED, 0)


def with_cores(hello: NodeJoined) -> NodeJoined:
    """The same devices as CPU slots, whose memory is a share of the machine's."""
    devices = tuple(replace(each, cores=(i,)) for i, each in enumerate(hello.devices))
    return replace(hello, devices=devices)


def gpus(*gigabytes: int, trials: int = 1, **changes: object) -> Playbook:
    book = play(trials, None, **changes)
    return book.tell(joined(len(gigabytes), memory=[GIB * each for each in gigabytes]))


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (CUDA, True),
        ("RuntimeError: CUDA error: out of memory", True),
        ("ResourceExhaustedError: OOM when allocating tensor with shape[4096]", True),
        (
            "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes",
            True,
        ),
        ("could not allocate: CUDA_ERROR_OUT_OF_MEMORY", True),
        ("MemoryError: Unable to allocate 8 GiB", False),
        (KILLED, False),
    ],
)
def test_what_frameworks_say_of_a_full_device_is_known(error: str, is_one: bool) -> None:
    assert (ruled(OUT_OF_DEVICE_MEMORY, error) is RetryAction.MORE_MEMORY) == is_one


def test_what_ran_out_of_memory_is_tried_again_only_where_there_is_more() -> None:
    book = gpus(8, 8, 16, 24, trials=2).expect("launch s/0#1 on n/0", "launch s/1#1 on n/1")
    book.tell(starved("s/0#1")).expect("launch s/0#2 on n/2")
    # The same error at the same step again is no bug of the program while there is more.
    book.tell(starved("s/0#2")).expect("launch s/0#3 on n/3")
    book.tell(starved("s/0#3")).expect()
    assert book.trial().phase is Phase.FAILED
    assert book.trial().reason == f"{CUDA} (no other device has more memory for it)"
    assert book.state.strikes == {}, "no device is to blame"


def test_it_waits_for_a_device_of_more_memory_that_is_busy() -> None:
    book = gpus(16, 8, trials=2).expect("launch s/0#1 on n/0", "launch s/1#1 on n/1")
    book.tell(starved("s/1#1")).expect()
    (left_out,) = book.scheduler.explain("s/1", 0).left_out
    assert (left_out.place, left_out.reason) == ("n/1", f"it failed there: {CUDA}")
    book.tell(completed("s/0#1")).expect("launch s/1#2 on n/0")


def test_a_rule_of_the_study_comes_first() -> None:
    rule = RetryRule("out of memory", RetryAction.NO_RETRY)
    book = gpus(8, 16, retry_rules=(rule,)).tell(starved("s/0#1"))
    assert book.trial().reason == f"{CUDA} (retry.rules: no_retry)"


def test_a_trial_that_may_fail_once_is_not_tried_again() -> None:
    book = gpus(8, 16, max_failures=1).tell(starved("s/0#1"))
    assert book.trial().phase is Phase.FAILED


def test_a_trial_goes_on_where_its_measured_memory_fits() -> None:
    book = gpus(16, 8, trials=2).expect("launch s/0#1 on n/0", "launch s/1#1 on n/1")
    book.tell(reported("s/0#1", 1, [1.0], device_memory_bytes=9 * GIB, memory_bytes=GIB))
    book.tell(reported("s/1#1", 1, [1.0], device_memory_bytes=2 * GIB, memory_bytes=20 * GIB))
    book.tell(written("s/0#1", 1), completed("s/1#1")).expect("launch s/0#2 on n/0 from s/0#1@1")
    book.tell(written("s/0#2", 1), submitted(1, "t"))
    assert {each.place: each.reason for each in book.scheduler.explain("s/0", 0).left_out} == {
        "n/1": "it has used more memory than the device has"
    }


def test_where_nothing_is_larger_it_may_go_on_anywhere() -> None:
    """What an allocator takes of a large device need not be what a program needs."""
    book = gpus(8).tell(reported("s/0#1", 1, [1.0], device_memory_bytes=9 * GIB))
    book.tell(written("s/0#1", 1)).expect("launch s/0#1 on n/0", "launch s/0#2 on n/0 from s/0#1@1")


def test_the_kernel_killing_a_program_sends_it_to_a_larger_share_if_there_is_one() -> None:
    book = play(2, None).tell(with_cores(joined(2, memory=[GIB, 2 * GIB])))
    book.expect("launch s/0#1 on n/0", "launch s/1#1 on n/1")
    book.tell(killed("s/0#1")).expect()
    book.tell(completed("s/1#1")).expect("launch s/0#2 on n/1")


def test_shares_of_one_size_are_tried_as_often_as_the_study_allows() -> None:
    """The machine's memory may have been taken by others."""
    book = play(1, None).tell(with_cores(joined(1))).tell(killed("s/0#1"))
    book.expect("launch s/0#1 on n/0", "launch s/0#2 on n/0")


def test_what_is_parked_on_a_slot_of_cores_goes_on_on_no_gpu() -> None:
    """Its program was told to use none."""
    book = play(3, None, policy=Plugin("round_robin"))
    hello = joined(2)
    slot = replace(hello.devices[0], cores=(0,))
    book.tell(replace(hello, devices=(slot, hello.devices[1])))
    book.expect("launch s/0#1 on n/0 for 30 s", "launch s/1#1 on n/1 for 30 s")
    book.tell(started("s/0#1"), quantum_ended("s/0#1", step=3)).expect("suspend s/0#1 for s/2")
    book.tell(parked("s/0#1", 3)).expect("launch s/2#1 on n/0 for 30 s")
    book.tell(completed("s/1#1")).expect()
    book.tell(completed("s/2#1")).expect("launch s/0#2 on n/0 for 30 s from s/0#1")
