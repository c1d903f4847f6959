"""The journal's tables. A change of them needs a new `VERSION`, and an `UPGRADE` to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

from hermesd import record
from hermesd.core.model import Time

APPLICATION_ID = 0x48524D53
VERSION = 3
NAME = "journal.db"

# `outcome` holds what an entry ended: see `outcomes`. `crc` covers the other columns of its row.
# A `points` row holds points of one metric of one run; `part` is the sequence number of the entry
# that it was written with. What has just come lies in `reports`: see `store`.
REPORTS = """
CREATE TABLE IF NOT EXISTS reports (
  number INTEGER PRIMARY KEY, trial TEXT NOT NULL, attempt INTEGER NOT NULL, points BLOB NOT NULL
) STRICT;
"""
# What callers did and were refused: see `hermesd.head.security.audit`.
AUDIT = """
CREATE TABLE IF NOT EXISTS audit (
  number INTEGER PRIMARY KEY, at REAL NOT NULL, role TEXT NOT NULL, name TEXT NOT NULL,
  shown TEXT NOT NULL, peer TEXT NOT NULL, method TEXT NOT NULL, subject TEXT NOT NULL,
  result TEXT NOT NULL, reason TEXT NOT NULL, times INTEGER NOT NULL
) STRICT;
"""
TABLES = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
CREATE TABLE journal (
  seq INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL,
  outcome TEXT NOT NULL, crc INTEGER NOT NULL
) STRICT;
CREATE INDEX submitted ON journal (seq) WHERE kind = 'Submitted';
CREATE TABLE points (
  trial TEXT NOT NULL, attempt INTEGER NOT NULL, metric TEXT NOT NULL, part INTEGER NOT NULL,
  steps BLOB NOT NULL, vals BLOB NOT NULL,
  PRIMARY KEY (trial, metric, attempt, part)
) STRICT;
CREATE TABLE snapshot (
  part INTEGER PRIMARY KEY, seq INTEGER NOT NULL, shape TEXT NOT NULL, digest TEXT NOT NULL,
  body BLOB NOT NULL
) STRICT;
{REPORTS}{AUDIT}"""
# What makes a journal of an earlier version one of this version.
UPGRADE = f"BEGIN; {REPORTS} {AUDIT} PRAGMA user_version = {VERSION}; COMMIT;"

INSERT_ENTRY = "INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?)"
SELECT_ENTRIES = (
    "SELECT seq, at, kind, body, outcome, crc FROM journal WHERE seq > ? ORDER BY seq LIMIT ?"
)
# The same for who tells what happened, and of many new trials only the first and the last. It is
# SQLite that cuts long lists: it keeps nobody from the interpreter meanwhile.
LONG_CHARACTERS = 64 * 1024
_CUT = (
    f"length(body) > {LONG_CHARACTERS} AND"
    " (kind = 'Submitted' OR kind = 'Added' AND ifnull(body -> '$.instead', '[]') = '[]')"
    " AND json_array_length(body, '$.trials') > 2"
)
_ENDS = "json_array(body -> '$.trials[0]', body -> '$.trials[#-1]')"
SELECT_CUT_ENTRIES = f"""
SELECT seq, at, kind, iif(cut, json_set(body, '$.trials', {_ENDS}), body), outcome,
  iif(cut, NULL, crc)
FROM (SELECT *, {_CUT} AS cut FROM journal WHERE seq > ? ORDER BY seq LIMIT ?)
"""
# For a repair: by a key that grows, so that damage can be stepped over.
SCAN_POINTS = (
    "SELECT rowid, trial, attempt, metric, part, steps, vals FROM points"
    " WHERE rowid > ? ORDER BY rowid LIMIT ?"
)
SCAN_REPORTS = (
    "SELECT number, trial, attempt, points FROM reports WHERE number > ? ORDER BY number LIMIT ?"
)
INSERT_REPORT = "INSERT INTO reports VALUES (?, ?, ?, ?)"
DELETE_REPORT = "DELETE FROM reports WHERE number = ?"
SELECT_REPORTS = "SELECT number, trial, attempt, points FROM reports ORDER BY number"
INSERT_AUDIT = "INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
SCAN_AUDIT = "SELECT * FROM audit WHERE number > ? ORDER BY number LIMIT ?"
# The newest so many are kept: some hundred megabytes.
AUDIT_LIMIT = 1_000_000
TRIM_AUDIT = "DELETE FROM audit WHERE number <= (SELECT max(number) FROM audit) - ?"
SELECT_AUDIT = """
SELECT * FROM audit
WHERE number < :before AND at >= :since AND (:name = '' OR name = :name)
  AND (NOT :refusals OR result != 'OK')
ORDER BY number DESC LIMIT :limit
"""
INSERT_POINTS = """
INSERT INTO points VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
  steps = CAST(steps || excluded.steps AS BLOB), vals = CAST(vals || excluded.vals AS BLOB)
"""


class PointRow(NamedTuple):
    """A row of `journal`, as it lies on the disk."""

    seq: int
    at: float
    kind: str
    body: str
    outcome: str
    #: None: its list of trials was cut.
    crc: int | None


class JournalLine(NamedTuple):
    """An entry in its place."""

    seq: int
    at: Time
    entry: record.Entry
    outcome: str


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """What one call did, or calls that were refused alike."""

    #: Given by the table.
    number: int
    at_unix_seconds: Time
    #: Empty where nobody was known; so is `name`.
    role: str
    name: str
    #: What let the caller in.
    shown: str
    peer: str
    method: str
    subject: str
    #: The name of a gRPC status code.
    result: str
    #: What a refusal said.
    reason: str
    #: How many calls were refused alike.
    times: int = 1


def checksum(seq: int, at: Time, kind: str, body: str, outcome: str) -> int:
    """What must be found again with a row."""
    return crc32(f"{seq} {at!r} {kind} {body} {outcome}".encode())


def to_row(line: JournalLine, encoded: tuple[str, str] | None = None) -> PointRow:
    """The row of an entry, which may have been encoded before."""
    kind, body = encoded or record.encode(line.entry)
    at = float(line.at)
    crc = checksum(line.seq, at, kind, body, line.outcome)
    return PointRow(line.seq, at, kind, body, line.outcome, crc)


def from_row(row: PointRow) -> JournalLine:
    """The entry of a row. Raises record.Unreadable."""
    if row.crc is not None and checksum(*row[:5]) != row.crc:
        raise record.UnreadableEntry(f"entry {row.seq}: its checksum does not agree")
    try:
        return JournalLine(row.seq, row.at, record.decode(row.kind, row.body), row.outcome)
    except record.UnreadableEntry as error:
        raise record.UnreadableEntry(f"entry {row.seq}: {error}") from None
