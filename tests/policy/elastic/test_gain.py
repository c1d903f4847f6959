"""The marginal gain: who gets the next device, and when nobody does."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from hermesd.policy.elastic.gain import ElasticJob, ServedJob, Split, divide, widths


def job(name: str, steps: float, *speeds: float, least: int = 1, young: bool = False) -> ElasticJob:
    """A job with these steps a second at widths 1, 2 ... ."""
    return ElasticJob(name, steps, lambda width: speeds[width - 1], least, len(speeds), young)


def synchronous(workers: int, servers: int) -> float:
    """ResNet-50 planted so that 20 tasks do best as the paper shows: 8 workers, 12 servers."""
    return 1 / (0.75 * 32 / workers + 1.0 + 2.7 * workers / servers + 0.1 * (workers + servers))


def test_each_device_goes_where_it_saves_most_time() -> None:
    # a: 100, 50, 40 s; b: 60, 30, 25 s. The gains in order: a 50, b 30, a 10, b 5.
    a, b = job("a", 100, 1, 2, 2.5), job("b", 60, 1, 2, 2.4)
    assert [widths([a, b], devices) for devices in (2, 3, 4, 5, 6, 9)] == [
        {"a": 1, "b": 1},
        {"a": 2, "b": 1},
        {"a": 2, "b": 2},
        {"a": 3, "b": 2},
        {"a": 3, "b": 3},
        {"a": 3, "b": 3},
    ]


def test_a_width_that_slows_a_job_down_is_not_taken() -> None:
    assert widths([job("a", 100, 1.0, 1.6, 1.5, 1.4)], 8) == {"a": 2}


def test_all_start_before_any_is_widened_and_the_last_wait() -> None:
    jobs = [job(name, steps, 1, 2) for name, steps in (("a", 1e6), ("b", 1.0), ("c", 1e6))]
    assert widths(jobs, 2) == {"a": 1, "b": 1}
    assert widths([job("a", 9, 0, 1, 2, least=2), job("b", 9, 1)], 2) == {"a": 2}
    assert widths([job("b", 9, 1), job("a", 9, 0, 1, 2, least=2), job("c", 9, 1)], 2) == {
        "b": 1,
        "c": 1,
    }


def test_a_width_without_a_speed_is_passed_over() -> None:
    # A batch that 3 does not divide: 2 more are worth (50 - 25) / 2 each, less than 20 of b.
    a, b = job("a", 100, 1, 2, 0, 4), job("b", 40, 1, 2)
    assert widths([a, b], 4) == {"a": 2, "b": 2}
    assert widths([a, b], 6) == {"a": 4, "b": 2}
    assert widths([a], 3) == {"a": 2}


def test_a_young_job_counts_for_less() -> None:
    old, young = job("old", 100, 1, 2), job("young", 104, 1, 2, young=True)
    assert widths([old, young], 3) == {"old": 2, "young": 1}
    assert widths([old, job("young", 106, 1, 2, young=True)], 3) == {"old": 1, "young": 2}


def test_a_job_of_which_nothing_is_known_stays_narrow() -> None:
    assert widths([job("a", float("inf"), 1, 2), job("b", 5, 1, 2)], 4) == {"a": 1, "b": 2}


def test_twenty_tasks_of_resnet50_are_eight_workers_and_twelve_servers() -> None:
    """The paper's figure: for 20 containers the fastest is w = 8, p = 12."""
    fastest = max(range(1, 20), key=lambda workers: synchronous(workers, 20 - workers))
    assert fastest == 8
    resnet = ServedJob("r", 1e4, synchronous, (1.0,), (1.0,), Split(1, 1), Split(20, 20))
    assert divide([resnet], (20.0,)) == {"r": Split(8, 12)}


def test_past_the_peak_of_equal_numbers_nothing_more_is_taken() -> None:
    """The paper's other figure: with p = w, more tasks slow the training down again."""
    equal = [synchronous(count, count) for count in range(1, 101)]
    peak = equal.index(max(equal))
    assert 1 < peak < 99
    assert equal[peak:] == sorted(equal[peak:], reverse=True)
    resnet = ServedJob("r", 1e4, synchronous, (1.0,), (1.0,), Split(1, 1), Split(200, 200))
    split = divide([resnet], (400.0,))["r"]
    assert sum(split) < 400
    assert synchronous(split.workers + 1, split.servers) <= synchronous(*split)
    assert synchronous(split.workers, split.servers + 1) <= synchronous(*split)


def test_a_gain_is_by_the_share_of_the_resource_that_is_dominant() -> None:
    def speed(workers: int, servers: int) -> float:
        return 1 / (100 / workers + 80 / servers)

    # A worker takes a GPU and a part of the memory, a server memory alone. A second worker saves
    # 50 s a step and a second server 40, and there is memory for one of them.
    each = ServedJob("a", 1, speed, (1.0, 1.0), (0.0, 1.0), Split(1, 1), Split(5, 5))
    # Of 10 GPUs and 3 parts of memory, either is a third: 150 against 120.
    assert divide([each], (10.0, 3.0)) == {"a": Split(2, 1)}
    # Of 2 GPUs a worker is the half: 100 against 120.
    assert divide([each], (2.0, 3.0)) == {"a": Split(1, 2)}
    # No GPU is left for a second worker; servers have the rest.
    assert divide([each], (1.0, 5.0)) == {"a": Split(1, 4)}


@given(
    st.lists(
        st.tuples(st.floats(1, 1e4), st.lists(st.floats(0.1, 1), min_size=3, max_size=3)),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 12),
)
def test_of_times_with_falling_gains_it_finds_the_least_sum(
    drawn: list[tuple[float, list[float]]], devices: int
) -> None:
    jobs = []
    for number, (steps, gains) in enumerate(drawn):
        seconds = [4.0]  # a step's, at widths 1 to 4; each width saves less than the one before
        for gain in sorted(gains, reverse=True):
            seconds.append(seconds[-1] - gain)
        jobs.append(job(str(number), steps, *(1 / each for each in seconds)))
    found = widths(jobs, devices)
    if devices < len(jobs):
        assert list(found.values()) == [1] * devices
        return
    assert sum(found.values()) <= devices
    least = min(
        sum(
            each.remaining_steps / each.speed(width)
            for each, width in zip(jobs, chosen, strict=True)
        )
        for chosen in product(range(1, 5), repeat=len(jobs))
        if sum(chosen) <= devices
    )
    ours = sum(each.remaining_steps / each.speed(found[each.trial]) for each in jobs)
    assert ours <= least * (1 + 1e-9)
