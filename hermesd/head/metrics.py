"""Prometheus' view of the head, on loopback, read off when it is asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hermesd.core.model import Phase
from hermesd.head.loop import Head
from hermesd.head.sessions import Sessions


class HeadMetrics(Collector):
    """Made from the head's own counters; keeps nothing of its own."""

    def __init__(self, head: Head, sessions: Sessions) -> None:
        self._head = head
        self._sessions = sessions

    def collect(self) -> Iterator[Metric]:
        counters = self._head.counters
        for name, value, words in (
            ("batches", counters.batches, "Batches decided and committed."),
            ("entries", counters.entries, "Entries written to the journal."),
            ("rejected", counters.rejected, "Events that the core rejected."),
        ):
            yield CounterMetricFamily(f"hermes_head_{name}", words, value=value)
        yield GaugeMetricFamily(
            "hermes_head_nodes", "Nodes attached.", value=len(self._sessions.all())
        )
        yield GaugeMetricFamily(
            "hermes_head_nodes_held_up",
            "Nodes that say more than they may, and are read more slowly.",
            value=len(self._sessions.held_up()),
        )
        yield GaugeMetricFamily(
            "hermes_head_journal_sequence", "Last entry.", value=self._head.committed
        )
        # Another thread asks: `list` of a dict's values is one step for the interpreter.
        known = list(self._head.state.trials.values())
        runs = [run for trial in known if (run := trial.run) is not None]
        yield GaugeMetricFamily(
            "hermes_head_trials_stalled",
            "Running trials that have come to no step for far longer than any took before.",
            value=sum(run.stalled_since is not None for run in runs),
        )
        phases = Counter(trial.phase for trial in known)
        trials = GaugeMetricFamily("hermes_head_trials", "Trials by phase.", labels=["phase"])
        for phase in Phase:
            trials.add_metric([phase], phases[phase])
        yield trials


@contextmanager
def served(head: Head, sessions: Sessions, port: int | None) -> Iterator[None]:
    """Answer on 127.0.0.1 for the block, in a thread of its own; no port, no thread."""
    if port is None:
        yield
        return
    registry = CollectorRegistry()
    registry.register(HeadMetrics(head, sessions))
    server, thread = start_http_server(port, "127.0.0.1", registry)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
