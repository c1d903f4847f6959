"""The head's counters for Prometheus, on loopback, computed when they are asked for."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import accumulate
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

import hermesd
from hermesd.config.schema import HeadConfig
from hermesd.core.model import Phase
from hermesd.head.counters import BUCKETS, Histogram
from hermesd.head.fleet.sessions import NodeSessions
from hermesd.head.loop import Head

SCRAPES_AT_ONCE = 8
# For all of a scrape: who says or takes a byte now and then must not keep a turn either.
SCRAPE_SECONDS = 10.0


class HeadMetrics(Collector):
    """Made from the head's own counters; keeps nothing of its own."""

    def __init__(self, head: Head, sessions: NodeSessions) -> None:
        self._head = head
        self._sessions = sessions

    def collect(self) -> Iterator[Metric]:
        build = GaugeMetricFamily("hermes_build_info", "Always 1.", labels=["version"])
        build.add_metric([hermesd.__version__], 1)
        yield build
        yield from self._loop()
        yield from self._trials()
        yield from self._studies()
        yield from self._nodes()
        yield from self._devices()

    def _loop(self) -> Iterator[Metric]:
        counters = self._head.counters
        for name, value, words in (
            ("head_batches", counters.batches, "Batches decided and committed."),
            ("head_entries", counters.entries, "Entries written to the journal."),
            ("head_rejected", counters.rejected, "Events that the core rejected."),
            ("reports", counters.reports, "Reports of trials."),
            ("run_failures", counters.failures, "Runs that failed."),
            ("policy_failures", counters.policy_failures, "Errors that policies raised."),
            ("checkpoints", counters.checkpoints, "Checkpoints taken."),
            ("checkpoint_bytes", counters.checkpoint_bytes, "Bytes of checkpoints taken."),
            ("starts", counters.starts, "Runs that started or resumed."),
            ("start_seconds", counters.start_seconds, "Device time taken by starting them."),
            ("suspends", counters.suspends, "Runs that were suspended."),
            ("suspend_seconds", counters.suspend_seconds, "Device time taken by suspending."),
        ):
            yield CounterMetricFamily(f"hermes_{name}", words, value=value)
        yield _histogram("hermes_head_decision_seconds", "One decision.", counters.deciding)
        words = "One commit of the journal, waiting and fsync included."
        yield _histogram("hermes_head_commit_seconds", words, counters.committing)
        words = "The write and the fsync alone of one transaction of the journal."
        yield _histogram("hermes_head_journal_fsync_seconds", words, self._head.journal.syncs)
        yield GaugeMetricFamily(
            "hermes_head_journal_sequence", "Last entry.", value=self._head.committed
        )
        words = "1 while nothing may be changed: the log says why."
        yield GaugeMetricFamily("hermes_head_read_only", words, value=bool(self._head.fault))

    def _trials(self) -> Iterator[Metric]:
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

    def _studies(self) -> Iterator[Metric]:
        """Of those alone that are not over, and not by trial: labels must not grow for ever."""
        state = self._head.state
        trials = GaugeMetricFamily(
            "hermes_study_trials", "Unfinished trials of a study.", labels=["study", "phase"]
        )
        for study, active in list(state.active.items()):
            found = [state.trials.get(trial) for trial in list(active)]
            phases = Counter(trial.phase for trial in found if trial is not None)
            for phase in Phase:
                if phases and not phase.final:
                    trials.add_metric([study, phase], phases[phase])
        yield trials

    def _nodes(self) -> Iterator[Metric]:
        sessions = self._sessions
        words = "Nodes attached."
        yield GaugeMetricFamily("hermes_head_nodes", words, value=len(sessions.all()))
        yield GaugeMetricFamily(
            "hermes_head_nodes_held_up",
            "Nodes that say more than they may, and are read more slowly.",
            value=len(sessions.slowed_nodes()),
        )
        connected = GaugeMetricFamily(
            "hermes_node_connected", "Whether a node is attached.", labels=["node", "pool"]
        )
        age = GaugeMetricFamily(
            "hermes_node_heartbeat_age_seconds", "Since a node was heard last.", labels=["node"]
        )
        for node in list(self._head.state.nodes.values()):
            if node.left:
                continue
            connected.add_metric([node.id, node.pool], node.connected)
            if (unheard := sessions.unheard_seconds(node.id)) is not None:
                age.add_metric([node.id], unheard)
        yield connected
        yield age
        yield from self._disks()

    def _disks(self) -> Iterator[Metric]:
        used = GaugeMetricFamily(
            "hermes_node_disk_used_bytes",
            "Bytes that a node's state directory takes, checkpoints included.",
            labels=["node"],
        )
        budget = GaugeMetricFamily(
            "hermes_node_disk_budget_bytes", "What it may take at most.", labels=["node"]
        )
        evictions = CounterMetricFamily(
            "hermes_node_disk_evictions",
            "Snapshots of code, environments and working copies removed to make room.",
            labels=["node"],
        )
        for session in self._sessions.all():
            if (disk := session.disk) is not None:
                used.add_metric([session.node], disk.used_bytes)
                budget.add_metric([session.node], disk.budget_bytes)
                evictions.add_metric([session.node], disk.evictions)
        yield used
        yield budget
        yield evictions

    def _devices(self) -> Iterator[Metric]:
        state = self._head.state
        busy = GaugeMetricFamily(
            "hermes_device_busy", "Whether a run has the device.", labels=["device", "pool"]
        )
        sound = GaugeMetricFamily(
            "hermes_device_sound", "Whether the device can be used.", labels=["device", "pool"]
        )
        seconds = CounterMetricFamily(
            "hermes_device_busy_seconds",
            "Time for which trials had the device, of runs that are over.",
            labels=["device", "pool"],
        )
        for name, slot in list(state.slots.items()):
            node = state.nodes.get(slot.device.node)
            if node is None or node.left:
                continue
            labels = [name, node.pool]
            busy.add_metric(labels, slot.run is not None)
            sound.add_metric(labels, slot.sound)
            seconds.add_metric(labels, slot.busy_seconds)
        yield busy
        yield sound
        yield seconds


def _histogram(name: str, words: str, histogram: Histogram) -> Metric:
    ends = [*(str(end) for end in BUCKETS), "+Inf"]
    counts = accumulate(list(histogram.counts))
    buckets = list(zip(ends, counts, strict=True))
    return HistogramMetricFamily(name, words, buckets=buckets, sum_value=histogram.total)


class _Handler(WSGIRequestHandler):
    """The log is for what the head does."""

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Scraped(ThreadingMixIn, WSGIServer):
    """A thread for each of a few requests at a time; who comes beyond those is let go at once."""

    daemon_threads = True
    request_queue_size = 16

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._free = threading.BoundedSemaphore(SCRAPES_AT_ONCE)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        ending = threading.Timer(SCRAPE_SECONDS, _hang_up, (request,))
        ending.daemon = True
        ending.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            ending.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # they have left, or never meant it


@contextmanager
def served(head: Head, sessions: NodeSessions, config: HeadConfig) -> Iterator[None]:
    """Answer on 127.0.0.1 for the block, in a thread of its own; no port, no thread.

    Raises StateRefused where the port is taken.
    """
    if config.metrics_port is None:
        yield
        return
    registry = CollectorRegistry()
    registry.register(HeadMetrics(head, sessions))
    remedy = "end what listens there, or name another head.metrics_port"
    with config.taking("metrics_port", "a port that is free on 127.0.0.1", remedy):
        server = make_server(
            "127.0.0.1", config.metrics_port, make_wsgi_app(registry), _Scraped, _Handler
        )
    thread = threading.Thread(target=server.serve_forever, name="metrics")
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
