"""Users, for people: what they have, used and may have. As in tables.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hermesctl.render.grid import Grid
from hermesctl.render.tables import cell, grid, moment
from hermesctl.sdk.records import AuditEntry, AuthorityStatus, IssuedToken, Member, User
from hermesctl.text import count, duration, number, percent


def users_table(members: Sequence[Member], users: Mapping[str, User], wide: bool) -> Grid:
    """Nodes and people with a certificate, and everybody who has or had devices."""
    extra = (">weight", ">fair share", ">studies") if wide else ()
    columns = (">devices", ">unfinished", ">used", ">share", *extra)
    spared = ("share", "certificate ends")
    table = grid("name", "role", *columns, "certificate ends", spared=spared, wide=wide)
    known = {member.name for member in members if member.role != "node"}
    rows = [(m.name, str(m.role), moment(m.expires_unix_seconds)) for m in members]
    rows += [(name, "-", "-") for name in users if name not in known]
    for name, role, ends in sorted(rows):
        user = users.get(name) if role != "node" else None
        cells = _shares(user, wide) if user is not None else ["-"] * len(columns)
        table.add_row(*map(cell, (name, role, *cells, ends)))
    return table


def tokens_table(tokens: Sequence[IssuedToken]) -> Grid:
    """People's tokens, with whose they are."""
    table = grid("token", "user", "role", "made by", "made", "ends", spared=("made by", "made"))
    for one in tokens:
        times = (moment(one.made_unix_seconds), moment(one.expires_unix_seconds))
        table.add_row(*map(cell, (one.name, one.user, str(one.role), one.by, *times)))
    return table


def authority_facts(status: AuthorityStatus) -> list[tuple[str, str]]:
    """What there is to know of a head's authority."""
    if not status.ends_unix_seconds:
        return [("authority", status.roots), ("rotation", "none is under way")]
    behind = ", ".join(f"{one.role} {one.name}" for one in status.behind)
    return [
        ("authority", status.roots),
        ("new key signs", f"from {moment(status.signs_unix_seconds)} on"),
        ("old key ends", moment(status.ends_unix_seconds)),
        ("not heard yet", behind or "nobody"),
    ]


def _shares(user: User, wide: bool) -> list[str]:
    studies = _of(user.studies, user.max_studies)
    extra = [number(user.weight), percent(user.fair_share), studies] if wide else []
    return [
        _of(user.devices, user.max_devices),
        _of(user.unfinished_trials, user.max_unfinished_trials),
        duration(user.decayed_device_seconds),
        percent(user.share),
        *extra,
    ]


def _of(have: int, most: int | None) -> str:
    return str(have) if most is None else f"{have}/{most}"


def audit_table(entries: Sequence[AuditEntry], wide: bool) -> Grid:
    """What was done and refused, in the order in which it was."""
    extra = ("shown", "~reason") if wide else ()
    headers = ("time", "who", "from", "did", "on", "result", *extra)
    table = grid(*headers, spared=("from", "on"), wide=wide)
    for entry in entries:
        who = f"{entry.role} {entry.name}".strip() or "nobody known"
        result = entry.result if entry.times == 1 else f"{entry.result}, {entry.times} times"
        cells = [moment(entry.at_unix_seconds), who, entry.peer, entry.method, entry.subject]
        style = "" if entry.result == "OK" else "yellow"
        more = [entry.shown, entry.reason] if wide else []
        table.add_row(*map(cell, cells), cell(result, style), *map(cell, more))
    return table


def user_facts(user: User, members: Sequence[Member]) -> list[tuple[str, str]]:
    """What there is to know of one user."""
    certificates = [
        f"{member.role}, until {moment(member.expires_unix_seconds)}"
        for member in members
        if member.name == user.name and member.role != "node"
    ]
    half_life = duration(user.half_life_seconds)
    return [
        ("user", user.name),
        ("certificate", "; ".join(certificates) or "none"),
        ("studies", _of(user.studies, user.max_studies)),
        ("unfinished", _quota(user.unfinished_trials, "trial", user.max_unfinished_trials)),
        ("on", _quota(user.devices, "device", user.max_devices)),
        (
            "used",
            f"{duration(user.decayed_device_seconds)} on devices, each second counting half as"
            f" much after {half_life}",
        ),
        ("share", f"{percent(user.share)} of what all have used, counted so"),
        (
            "fair share",
            f"{percent(user.fair_share)}, by a weight of {number(user.weight)} beside those who"
            " have unfinished trials",
        ),
    ]


def _quota(have: int, noun: str, most: int | None) -> str:
    limit = "no quota" if most is None else f"at most {most}"
    return f"{count(have, noun)}, {limit}"
