"""How the daemons log: one line an event on stderr, which systemd's journal takes as it is."""

from __future__ import annotations

import os
import sys

import structlog


def configure() -> None:
    """Set structlog up; lines carry the time only where nobody else adds it."""
    times = [] if "JOURNAL_STREAM" in os.environ else [structlog.processors.TimeStamper("iso")]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            *times,
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(
                key_order=["timestamp", "level", "event"], drop_missing=True
            ),
        ],
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
