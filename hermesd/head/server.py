"""The head: put together, and run until it is told to stop."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health
from grpc_reflection.v1alpha.reflection import enable_server_reflection

import hermesd
from hermesd.binding import most_connections
from hermesd.config.pools import configured
from hermesd.config.schema import HeadConfig
from hermesd.core.decide.scheduler import Scheduler
from hermesd.core.events import PoolsConfigured
from hermesd.core.model import NodeId, Time
from hermesd.core.placement import PLACEMENTS, make_placement
from hermesd.core.state import State
from hermesd.crowd import Crowd
from hermesd.head.api.asking import AskingService
from hermesd.head.api.enroll import EnrollService, Invitations
from hermesd.head.api.files import FilesService
from hermesd.head.api.nodes import NodesService
from hermesd.head.api.signals import Signals
from hermesd.head.api.studies import StudiesService
from hermesd.head.api.trials import TrialsService
from hermesd.head.api.users import AuditService, UsersService, changed_terms
from hermesd.head.api.watch import WatchService
from hermesd.head.blobs import Blobs
from hermesd.head.clock import Clock
from hermesd.head.fleet.relay import Relay
from hermesd.head.fleet.sessions import Leasing, NodeSessions, terms
from hermesd.head.fleet.stale_state import StaleState
from hermesd.head.fleet.stream import NodeService
from hermesd.head.journal import file as journal_file
from hermesd.head.journal.replay import replay
from hermesd.head.journal.store import Journal, opened
from hermesd.head.loop import AT_ONCE, Head
from hermesd.head.populations import Populations
from hermesd.head.reader import SWITCH_SECONDS
from hermesd.head.searching import Searching
from hermesd.head.security.admission import Admission
from hermesd.head.security.audit import Audit
from hermesd.head.security.authority import Authority
from hermesd.head.security.listen import keep_socket, make_enroll_server, make_server, second_name
from hermesd.head.security.tokens import Tokens
from hermesd.head.statedir import expecting, owned
from hermesd.logs import get_logger
from hermesd.notify import keep_watchdog_fed, notify
from hermesd.pb.hermes.v1 import (
    control_pb2,
    control_pb2_grpc,
    enroll_pb2_grpc,
    node_pb2,
    node_pb2_grpc,
)
from hermesd.pb.hermes.v1 import control_pb2 as pb
from hermesd.policy import POLICIES, make_policy
from hermesd.security.identity import Identity, Role

GRACE_SECONDS = 2.0
# Code that was uploaded and never submitted goes after so long; it is looked for now and then.
ORPHAN_SECONDS = 6 * 3600.0
SWEEP_SECONDS = 1800.0
ROTATION_STEP_SECONDS = 1.0

# How many more values than before make the collector look at the youngest, how often that makes it
# look at those that were young then, and how often these looks make it look at everything. Nobody
# gets the interpreter meanwhile: two milliseconds for each of the former two, a quarter of a second
# for the last one beside a study of 100,000 trials.
GC_THRESHOLDS = (5_000, 2, 5_000)

# What people's own clients find by asking.
_SERVICES = (
    control_pb2.DESCRIPTOR.services_by_name["ControlService"].full_name,
    health_pb2.DESCRIPTOR.services_by_name["Health"].full_name,
)

log = get_logger()


_SERVICE = pb.DESCRIPTOR.services_by_name["ControlService"]


def control_service(*parts: object) -> control_pb2_grpc.ControlServiceServicer:
    """The servicer: each method is that of the one part that has it."""
    methods = {}
    for method in _SERVICE.methods:
        (part,) = (part for part in parts if hasattr(part, method.name))
        methods[method.name] = getattr(part, method.name)
    return cast(control_pb2_grpc.ControlServiceServicer, SimpleNamespace(**methods))


@dataclass(frozen=True)
class HeadService:
    """What is asked of the head itself."""

    head: Head
    cluster_id: str
    started: Time

    async def ServerInfo(
        self, request: pb.ServerInfoRequest, context: Any
    ) -> pb.ServerInfoResponse:
        return pb.ServerInfoResponse(
            version=hermesd.__version__,
            cluster_id=self.cluster_id,
            started_unix_seconds=self.started,
            policies=sorted(POLICIES),
            placements=sorted(PLACEMENTS),
            read_only=bool(self.head.fault),
            read_only_reason=self.head.fault,
            journal_sequence=self.head.committed,
        )


@dataclass(frozen=True, slots=True)
class Running:
    """A head that answers."""

    head: Head
    sessions: NodeSessions
    searching: Searching
    server: grpc.aio.Server
    # Where invitations are redeemed, if anywhere.
    reception: grpc.aio.Server | None
    leasing: Leasing
    audit: Audit
    health: health.HealthServicer
    blobs: Blobs
    authority: Authority | None
    crowd: Crowd

    async def start(self) -> None:
        """Answer from here on."""
        for server in self._servers:
            await server.start()

    async def stop(self) -> None:
        """Answer no more; streams that are open get a moment."""
        for server in self._servers:
            await server.stop(GRACE_SECONDS if self.sessions.all() else 0)

    @property
    def _servers(self) -> list[grpc.aio.Server]:
        return [self.server, *([self.reception] if self.reception is not None else ())]


async def serve(config: HeadConfig) -> None:
    """Run a head until SIGTERM or SIGINT.

    Raises StateRefused if it may not start, StateAway if it may later, and whatever broke it: the
    caller's process ends.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with running(config) as head:
        # What there is by now stays. What is made of a message is in no cycle, and goes by itself;
        # to look for cycles in a large state would hold up everybody for longer than a commit.
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        sys.setswitchinterval(SWITCH_SECONDS)
        notify("READY=1")
        log.info("head ready", socket=str(config.socket_path), listen=config.listen or "")
        await stop.wait()
        notify("STOPPING=1")
        await _farewell(head)


@asynccontextmanager
async def running(config: HeadConfig) -> AsyncIterator[Running]:
    """A head that runs for the block; if it breaks, the block is cancelled and the error raised."""
    with owned(config.state_dir, called=config.told("state_dir")):
        async with opened(config.state_dir) as journal:
            whole = await _put_together(config, journal)
            try:
                async with asyncio.TaskGroup() as tasks:
                    helpers = [
                        tasks.create_task(whole.head.run()),
                        tasks.create_task(whole.head.reader.run()),
                        tasks.create_task(whole.searching.run()),
                        tasks.create_task(Populations(whole.head).run()),
                        tasks.create_task(Signals(whole.head).run()),
                        tasks.create_task(keep_watchdog_fed()),
                        tasks.create_task(whole.leasing.keep()),
                        tasks.create_task(whole.audit.run()),
                        tasks.create_task(_keep_forgetting(whole)),
                        tasks.create_task(_keep_rotating(whole.authority)),
                    ]
                    try:
                        await _tell_terms(config, whole.head)
                        await whole.start()
                        socket = config.socket_path
                        keeping = keep_socket(socket, second_name(socket))
                        helpers.append(tasks.create_task(keeping))
                        ports = filter(None, (config.listen, config.enroll_address))
                        with (
                            whole.crowd.watched(f"unix:{socket}", *ports),
                            _metrics(whole, config),
                        ):
                            yield whole
                    finally:
                        await whole.stop()
                        for helper in helpers:
                            helper.cancel()
            except BaseExceptionGroup as group:
                raise _innermost(group) from None
            finally:
                config.socket_path.unlink(missing_ok=True)


def _metrics(running: Running, config: HeadConfig) -> AbstractContextManager[None]:
    """The counters for Prometheus, whose library is imported only where somebody wants them."""
    if config.metrics_port is None:
        return nullcontext()
    from hermesd.head import metrics

    return metrics.served(running.head, running.sessions, config)


async def _tell_terms(config: HeadConfig, head: Head) -> None:
    """Have the settings about users in force, and on the disk, before anybody is answered."""
    terms = changed_terms(config, head.state)
    if terms is not None and not head.fault:
        await head.tell(terms)


def _innermost(error: BaseException) -> BaseException:
    """What broke, not the groups that it came through."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def _what_decides(
    config: HeadConfig, journal: Journal, sessions: NodeSessions
) -> tuple[Head, Leasing, StaleState]:
    """The scheduler in its loop, with the state of the journal."""
    replayed = await replay(journal)
    state = replayed.state
    if replayed.fault:
        log.error("read-only", reason=replayed.fault)
    clock = Clock(after=state.now)
    lease = terms(config.lease_seconds)
    leasing = Leasing(config.state_dir / "longest-silence", lease, known=bool(state.nodes))
    scheduler = Scheduler(
        state,
        make_policy,
        make_placement,
        lease,
        config.strike_half_life_seconds,
        none_lost_before=clock() + leasing.patience_seconds,
        at_once=AT_ONCE,
    )
    silent_until = max(scheduler.none_lost_before, clock() + lease.silence_seconds)
    path = config.state_dir / "set-back"
    setback = StaleState(path, scheduler, journal.last, silent_until, clock())
    head = Head(
        scheduler, journal, clock, sessions.carry_out, replayed.fault, replayed.snapshot_seq
    )
    sessions.head = head
    pools = configured(config.pools)
    if pools != tuple(state.pools.values()):
        head.push(PoolsConfigured(pools))
    return head, leasing, setback


async def _put_together(config: HeadConfig, journal: Journal) -> Running:
    sessions = NodeSessions()
    head, leasing, setback = await _what_decides(config, journal, sessions)
    clock = head.clock
    blobs = Blobs(config.state_dir / "blobs", config.blob_limit_bytes, config.blobs_limit_bytes)
    if not head.fault:
        await _forget_leftovers(journal, blobs, head.state, clock() - ORPHAN_SECONDS)
    taken, owners = await journal.submitted(), await journal.owners()
    authority = Authority(config.state_dir / "authority") if config.has_authority else None
    cluster_id = _cluster_id(config.state_dir / "cluster-id")
    admission = Admission(authority, configured(config.pools))
    invitations = Invitations(config.state_dir / "invitations.json", clock)
    audit = Audit(None if head.fault else journal, clock)
    tokens = _tokens(config, authority, clock)
    crowd = Crowd(most_connections())
    server = await make_server(config, authority, audit, tokens, crowd)
    relay = Relay(config.state_dir)
    searching = Searching(head)
    revoke = functools.partial(_revoke, authority)
    control = control_service(
        HeadService(head, cluster_id, started=clock()),
        AuditService(journal, clock),
        StudiesService(head, blobs, sessions, setback, taken, owners),
        TrialsService(head, sessions, setback),
        AskingService(head, searching.propose),
        UsersService(head),
        NodesService(head, sessions, revoke),
        WatchService(head, owners),
        FilesService(head, sessions, relay),
    )
    control_pb2_grpc.add_ControlServiceServicer_to_server(control, server)
    node_pb2_grpc.add_NodeServiceServicer_to_server(
        NodeService(head, sessions, relay, blobs, taken, setback, revoke, admission), server
    )
    try:
        enrolling = EnrollService(
            authority if config.enroll_address else None,
            admission,
            invitations,
            tokens,
            sessions,
            config.listen or "",
            config.enroll_address or "",
            owners,
        )
        reception = await _reception(config, authority, audit, enrolling, server)
    except BaseException:
        await server.stop(None)
        raise
    asked = _health_of(server)
    return Running(
        head, sessions, searching, server, reception, leasing, audit, asked, blobs, authority, crowd
    )


def _health_of(server: grpc.aio.Server) -> health.HealthServicer:
    """gRPC's own services: health, and what else is served."""
    found = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(found, server)
    enable_server_reflection(_SERVICES, server)
    return found


async def _forget_leftovers(journal: Journal, blobs: Blobs, state: State, older_than: Time) -> None:
    """Points and code of nothing that is still there go."""
    await journal.forget_points(set(await journal.trials_with_points()) - state.trials.keys())
    _forget_code(blobs, state, older_than)


def _forget_code(blobs: Blobs, state: State, older_than: Time) -> None:
    used = {study.program.code_sha256 for study in state.studies.values()}
    blobs.keep_only(used, older_than=older_than)


async def _keep_forgetting(whole: Running) -> None:
    """Have code that was uploaded and never submitted go, for as long as this task lives."""
    head = whole.head
    while not head.fault:
        await asyncio.sleep(SWEEP_SECONDS)
        try:
            _forget_code(whole.blobs, head.state, head.clock() - ORPHAN_SECONDS)
        except OSError as error:  # it is tried again
            log.warning("code that nobody needs was not removed", reason=str(error))


async def _keep_rotating(authority: Authority | None) -> None:
    """Have a new authority take over when it is due."""
    while authority is not None:
        await asyncio.sleep(ROTATION_STEP_SECONDS)
        try:
            authority.advance()
        except OSError as error:  # a full disk, for example: it is tried again
            log.error("the authority is not replaced yet", reason=str(error))


def _tokens(config: HeadConfig, authority: Authority | None, clock: Clock) -> Tokens | None:
    """Those of people; None for a head that asks nobody for one."""
    if config.embedded:
        return None
    known_by = authority.roots_pem if authority is not None else b""
    return Tokens(config.state_dir / "tokens.json", clock, known_by)


def _revoke(authority: Authority | None, node: NodeId) -> None:
    if authority is not None:
        authority.revoke(Identity(Role.NODE, node))


async def _reception(
    config: HeadConfig,
    authority: Authority | None,
    audit: Audit,
    service: EnrollService,
    server: grpc.aio.Server,
) -> grpc.aio.Server | None:
    """Enrollment: invitations are made through `server`, and redeemed where no one is known yet."""
    enroll_pb2_grpc.add_EnrollServiceServicer_to_server(service, server)
    if config.enroll_address is None or authority is None:
        return None
    reception = await make_enroll_server(config, config.enroll_address, authority, audit)
    enroll_pb2_grpc.add_EnrollServiceServicer_to_server(service, reception)
    return reception


async def _farewell(running: Running) -> None:
    """Tell the nodes, and let them go: a stream that is open would hold up the stop."""
    await running.health.enter_graceful_shutdown()
    going = node_pb2.AttachResponse(going_away=node_pb2.GoingAway(reason="the head stops"))
    for session in running.sessions.all():
        session.send(going)
        session.close("the head stops")


def _cluster_id(path: Path) -> str:
    """Who we are, made at the first start."""
    if not path.exists():
        partial = path.with_suffix(".partial")
        with partial.open("w", encoding="ascii") as file:
            file.write(str(uuid.uuid4()))
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
        journal_file.sync(path.parent)
    remedy = "put it back of a backup, or remove it, and a new one is made"
    with expecting(path, "the id of this head, a UUID", remedy):
        return str(uuid.UUID(path.read_text(encoding="ascii").strip()))
