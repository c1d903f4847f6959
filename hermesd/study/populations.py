"""Studies whose policy replaces trials by forks: what they must be like, and what is said about
them beforehand."""

from __future__ import annotations

from collections.abc import Iterator

from hermesd.core.lengths import is_length
from hermesd.core.model import Plugin, Share
from hermesd.core.policy import Breeding
from hermesd.policy import make_policy
from hermesd.policy.published.pbt import Pbt
from hermesd.refusal import FieldError, nearest, one_of
from hermesd.study import space
from hermesd.study.sequences import sequences, shape_of
from hermesd.study.spec import StudySection


def breeder(policy: Plugin) -> Pbt | None:
    """The policy, if it is one of populations. Raises BadSetting."""
    made = make_policy(policy) if policy.name == Pbt.name else None
    assert made is None or (isinstance(made, Pbt) and isinstance(made, Breeding))
    return made


def explorable(section: StudySection) -> list[str]:
    """The parameters that a fork may explore: those that are searched, but for lengths and what
    shapes a sequence."""
    shape = shape_of(sequences(section.sequences), section.parameters)
    axes = space.axes(section.parameters)
    return [
        name
        for name, axis in axes.items()
        if axis.size != 1 and name not in shape and not is_length(name)
    ]


def errors(section: StudySection, policy: Plugin) -> Iterator[FieldError]:
    """What a population cannot have. Raises Refused, BadSetting."""
    population = breeder(policy)
    if population is None:
        return
    if section.method not in ("grid", "random") or section.search.asked:
        expected = "grid or random with schedule.policy pbt, which makes its further trials itself"
        yield FieldError("method", section.method, expected, "random")
    if section.share is not Share.NO:
        expected = "no with schedule.policy pbt, whose trials part at random"
        yield FieldError("share", str(section.share), expected, "no")
    least, most = section.resources.devices, section.resources.max_devices
    if most is not None and most > least:
        expected = "one number with schedule.policy pbt: a fork begins on as many as its parent had"
        yield FieldError("resources.devices", f"{least} to {most}", expected, str(least))
    known = explorable(section)
    for name in population.explore:
        if name not in known:
            expected = one_of(known) if known else "nothing: no parameter is searched"
            path = "schedule.policy.explore"
            yield FieldError(path, name, expected, nearest(name, known))


def notes(section: StudySection, policy: Plugin, trials: int) -> Iterator[str]:
    """What will happen, for who submits it."""
    population = breeder(policy)
    if population is None:
        return
    names = population.explore or explorable(section)
    steps = population.interval_steps
    if population.exploit == "truncation":
        each = max(1, int(population.share * trials + 1e-9))
        who = f"the worst {each} of {trials} are replaced by forks of the best {each}"
    else:
        clearly = "significantly " if population.exploit == "t_test" else ""
        who = f"each of {trials} that is {clearly}worse than one drawn at random is replaced by"
        who += " its fork"
    what = f"with other values of {', '.join(names)}" if names else "with the same parameters"
    yield f"pbt: every {steps:,} steps {who}, {what}; those replaced are parked, not ended"
    if trials < 2:
        yield "pbt: a population of one trial replaces nothing; give run_cap or a larger grid"
