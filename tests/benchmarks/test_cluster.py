"""Simulated nodes are nodes to a real head, so that what it costs with them is what it costs."""

from __future__ import annotations

import pytest

from benchmarks import cluster


def test_a_row_is_of_nodes_that_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """The studies run on both and are answered at quanta's ends, which makes the row whole."""
    monkeypatch.setattr(cluster, "SETTLE_SECONDS", 1)
    row = dict(zip(cluster.COLUMNS, cluster.under_nodes(2, 3.0, 1.0), strict=True))
    assert row["nodes"] == 2
    assert float(row["events_per_s"]) > 0
    assert row["streams_lost"] == 0
