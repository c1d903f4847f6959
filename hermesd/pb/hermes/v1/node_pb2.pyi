from hermesd.pb.hermes.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunCondition(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUN_CONDITION_UNSPECIFIED: _ClassVar[RunCondition]
    RUN_CONDITION_STARTING: _ClassVar[RunCondition]
    RUN_CONDITION_RUNNING: _ClassVar[RunCondition]
    RUN_CONDITION_PARKED: _ClassVar[RunCondition]
    RUN_CONDITION_ENDED: _ClassVar[RunCondition]
RUN_CONDITION_UNSPECIFIED: RunCondition
RUN_CONDITION_STARTING: RunCondition
RUN_CONDITION_RUNNING: RunCondition
RUN_CONDITION_PARKED: RunCondition
RUN_CONDITION_ENDED: RunCondition

class AttachRequest(_message.Message):
    __slots__ = ("sequence", "hello", "heartbeat", "goodbye", "run_started", "report", "quantum_ended", "milestone_passed", "run_suspended", "run_completed", "run_failed", "checkpointed", "fidelity_known", "park_lost", "device_failed", "usage", "file_chunk", "holdings", "yielded", "reclaimed", "copied", "not_copied", "looked", "spoilt", "dropped", "run_stalled", "not_saved", "identity", "boottime_seconds")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    RUN_STARTED_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    QUANTUM_ENDED_FIELD_NUMBER: _ClassVar[int]
    MILESTONE_PASSED_FIELD_NUMBER: _ClassVar[int]
    RUN_SUSPENDED_FIELD_NUMBER: _ClassVar[int]
    RUN_COMPLETED_FIELD_NUMBER: _ClassVar[int]
    RUN_FAILED_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTED_FIELD_NUMBER: _ClassVar[int]
    FIDELITY_KNOWN_FIELD_NUMBER: _ClassVar[int]
    PARK_LOST_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FAILED_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    FILE_CHUNK_FIELD_NUMBER: _ClassVar[int]
    HOLDINGS_FIELD_NUMBER: _ClassVar[int]
    YIELDED_FIELD_NUMBER: _ClassVar[int]
    RECLAIMED_FIELD_NUMBER: _ClassVar[int]
    COPIED_FIELD_NUMBER: _ClassVar[int]
    NOT_COPIED_FIELD_NUMBER: _ClassVar[int]
    LOOKED_FIELD_NUMBER: _ClassVar[int]
    SPOILT_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    RUN_STALLED_FIELD_NUMBER: _ClassVar[int]
    NOT_SAVED_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    BOOTTIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    hello: Hello
    heartbeat: Heartbeat
    goodbye: Goodbye
    run_started: RunStarted
    report: Report
    quantum_ended: QuantumEnded
    milestone_passed: MilestonePassed
    run_suspended: RunSuspended
    run_completed: RunCompleted
    run_failed: RunFailed
    checkpointed: Checkpointed
    fidelity_known: FidelityKnown
    park_lost: ParkLost
    device_failed: DeviceFailed
    usage: UsageReport
    file_chunk: FileChunk
    holdings: Holdings
    yielded: Yielded
    reclaimed: Reclaimed
    copied: Copied
    not_copied: NotCopied
    looked: Looked
    spoilt: Spoilt
    dropped: Dropped
    run_stalled: RunStalled
    not_saved: NotSaved
    identity: str
    boottime_seconds: float
    def __init__(self, sequence: _Optional[int] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ..., run_started: _Optional[_Union[RunStarted, _Mapping]] = ..., report: _Optional[_Union[Report, _Mapping]] = ..., quantum_ended: _Optional[_Union[QuantumEnded, _Mapping]] = ..., milestone_passed: _Optional[_Union[MilestonePassed, _Mapping]] = ..., run_suspended: _Optional[_Union[RunSuspended, _Mapping]] = ..., run_completed: _Optional[_Union[RunCompleted, _Mapping]] = ..., run_failed: _Optional[_Union[RunFailed, _Mapping]] = ..., checkpointed: _Optional[_Union[Checkpointed, _Mapping]] = ..., fidelity_known: _Optional[_Union[FidelityKnown, _Mapping]] = ..., park_lost: _Optional[_Union[ParkLost, _Mapping]] = ..., device_failed: _Optional[_Union[DeviceFailed, _Mapping]] = ..., usage: _Optional[_Union[UsageReport, _Mapping]] = ..., file_chunk: _Optional[_Union[FileChunk, _Mapping]] = ..., holdings: _Optional[_Union[Holdings, _Mapping]] = ..., yielded: _Optional[_Union[Yielded, _Mapping]] = ..., reclaimed: _Optional[_Union[Reclaimed, _Mapping]] = ..., copied: _Optional[_Union[Copied, _Mapping]] = ..., not_copied: _Optional[_Union[NotCopied, _Mapping]] = ..., looked: _Optional[_Union[Looked, _Mapping]] = ..., spoilt: _Optional[_Union[Spoilt, _Mapping]] = ..., dropped: _Optional[_Union[Dropped, _Mapping]] = ..., run_stalled: _Optional[_Union[RunStalled, _Mapping]] = ..., not_saved: _Optional[_Union[NotSaved, _Mapping]] = ..., identity: _Optional[str] = ..., boottime_seconds: _Optional[float] = ...) -> None: ...

class AttachResponse(_message.Message):
    __slots__ = ("lease", "acknowledged_sequence", "welcome", "launch", "renew", "suspend", "stop", "kill", "release", "going_away", "send_file", "forget", "upcoming", "write_down", "save", "copy", "drop", "look")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_FIELD_NUMBER: _ClassVar[int]
    RENEW_FIELD_NUMBER: _ClassVar[int]
    SUSPEND_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    KILL_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    GOING_AWAY_FIELD_NUMBER: _ClassVar[int]
    SEND_FILE_FIELD_NUMBER: _ClassVar[int]
    FORGET_FIELD_NUMBER: _ClassVar[int]
    UPCOMING_FIELD_NUMBER: _ClassVar[int]
    WRITE_DOWN_FIELD_NUMBER: _ClassVar[int]
    SAVE_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    DROP_FIELD_NUMBER: _ClassVar[int]
    LOOK_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    acknowledged_sequence: int
    welcome: Welcome
    launch: Launch
    renew: Renew
    suspend: SuspendRun
    stop: StopRun
    kill: KillRun
    release: ReleaseTrial
    going_away: GoingAway
    send_file: SendFile
    forget: Forget
    upcoming: Upcoming
    write_down: WriteDown
    save: SaveRun
    copy: CopyCheckpoint
    drop: DropCheckpoints
    look: LookAt
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., acknowledged_sequence: _Optional[int] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., launch: _Optional[_Union[Launch, _Mapping]] = ..., renew: _Optional[_Union[Renew, _Mapping]] = ..., suspend: _Optional[_Union[SuspendRun, _Mapping]] = ..., stop: _Optional[_Union[StopRun, _Mapping]] = ..., kill: _Optional[_Union[KillRun, _Mapping]] = ..., release: _Optional[_Union[ReleaseTrial, _Mapping]] = ..., going_away: _Optional[_Union[GoingAway, _Mapping]] = ..., send_file: _Optional[_Union[SendFile, _Mapping]] = ..., forget: _Optional[_Union[Forget, _Mapping]] = ..., upcoming: _Optional[_Union[Upcoming, _Mapping]] = ..., write_down: _Optional[_Union[WriteDown, _Mapping]] = ..., save: _Optional[_Union[SaveRun, _Mapping]] = ..., copy: _Optional[_Union[CopyCheckpoint, _Mapping]] = ..., drop: _Optional[_Union[DropCheckpoints, _Mapping]] = ..., look: _Optional[_Union[LookAt, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("node", "boot_id", "version", "devices", "runs", "facts", "transfer_address", "transfer_key", "yields", "disk", "shared", "parting", "heard_head", "heard_journal_sequence", "machine", "parked_memory_bytes", "runs_as_itself", "boottime_seconds", "image_features")
    NODE_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_KEY_FIELD_NUMBER: _ClassVar[int]
    YIELDS_FIELD_NUMBER: _ClassVar[int]
    DISK_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    PARTING_FIELD_NUMBER: _ClassVar[int]
    HEARD_HEAD_FIELD_NUMBER: _ClassVar[int]
    HEARD_JOURNAL_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    PARKED_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    RUNS_AS_ITSELF_FIELD_NUMBER: _ClassVar[int]
    BOOTTIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FEATURES_FIELD_NUMBER: _ClassVar[int]
    node: str
    boot_id: str
    version: str
    devices: _containers.RepeatedCompositeFieldContainer[_types_pb2.Device]
    runs: _containers.RepeatedCompositeFieldContainer[LiveRun]
    facts: _containers.RepeatedScalarFieldContainer[str]
    transfer_address: str
    transfer_key: bytes
    yields: _containers.RepeatedCompositeFieldContainer[Yielded]
    disk: str
    shared: str
    parting: bool
    heard_head: str
    heard_journal_sequence: int
    machine: _containers.RepeatedScalarFieldContainer[str]
    parked_memory_bytes: int
    runs_as_itself: bool
    boottime_seconds: float
    image_features: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, node: _Optional[str] = ..., boot_id: _Optional[str] = ..., version: _Optional[str] = ..., devices: _Optional[_Iterable[_Union[_types_pb2.Device, _Mapping]]] = ..., runs: _Optional[_Iterable[_Union[LiveRun, _Mapping]]] = ..., facts: _Optional[_Iterable[str]] = ..., transfer_address: _Optional[str] = ..., transfer_key: _Optional[bytes] = ..., yields: _Optional[_Iterable[_Union[Yielded, _Mapping]]] = ..., disk: _Optional[str] = ..., shared: _Optional[str] = ..., parting: bool = ..., heard_head: _Optional[str] = ..., heard_journal_sequence: _Optional[int] = ..., machine: _Optional[_Iterable[str]] = ..., parked_memory_bytes: _Optional[int] = ..., runs_as_itself: bool = ..., boottime_seconds: _Optional[float] = ..., image_features: _Optional[_Iterable[str]] = ...) -> None: ...

class LiveRun(_message.Message):
    __slots__ = ("trial", "attempt", "condition", "devices", "step", "identity")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    trial: str
    attempt: int
    condition: RunCondition
    devices: _containers.RepeatedScalarFieldContainer[str]
    step: int
    identity: str
    def __init__(self, trial: _Optional[str] = ..., attempt: _Optional[int] = ..., condition: _Optional[_Union[RunCondition, str]] = ..., devices: _Optional[_Iterable[str]] = ..., step: _Optional[int] = ..., identity: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("head_version", "lease_seconds", "lease_grace_seconds")
    HEAD_VERSION_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LEASE_GRACE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    head_version: str
    lease_seconds: float
    lease_grace_seconds: float
    def __init__(self, head_version: _Optional[str] = ..., lease_seconds: _Optional[float] = ..., lease_grace_seconds: _Optional[float] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Lease(_message.Message):
    __slots__ = ("sent_boottime_seconds", "lease_seconds", "left_behind", "head", "journal_sequence", "authority_mark", "report_seconds")
    SENT_BOOTTIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LEFT_BEHIND_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    AUTHORITY_MARK_FIELD_NUMBER: _ClassVar[int]
    REPORT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    sent_boottime_seconds: float
    lease_seconds: float
    left_behind: int
    head: str
    journal_sequence: int
    authority_mark: str
    report_seconds: float
    def __init__(self, sent_boottime_seconds: _Optional[float] = ..., lease_seconds: _Optional[float] = ..., left_behind: _Optional[int] = ..., head: _Optional[str] = ..., journal_sequence: _Optional[int] = ..., authority_mark: _Optional[str] = ..., report_seconds: _Optional[float] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ("reason", "for_good")
    REASON_FIELD_NUMBER: _ClassVar[int]
    FOR_GOOD_FIELD_NUMBER: _ClassVar[int]
    reason: str
    for_good: bool
    def __init__(self, reason: _Optional[str] = ..., for_good: bool = ...) -> None: ...

class GoingAway(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Launch(_message.Message):
    __slots__ = ("trial", "attempt", "devices", "quantum", "reason", "parked_attempt", "checkpoint", "program", "durability_seconds", "suspend_deadline_seconds", "identity", "sources", "result_checkpoint", "kept_parked", "start_allowance_seconds", "hung_seconds", "stalled", "processes", "checkpoint_steps", "user", "never_anew")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    QUANTUM_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PARKED_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SUSPEND_DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    RESULT_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    KEPT_PARKED_FIELD_NUMBER: _ClassVar[int]
    START_ALLOWANCE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    HUNG_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STALLED_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_STEPS_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    NEVER_ANEW_FIELD_NUMBER: _ClassVar[int]
    trial: str
    attempt: int
    devices: _containers.RepeatedScalarFieldContainer[str]
    quantum: _types_pb2.Quantum
    reason: str
    parked_attempt: int
    checkpoint: _types_pb2.Checkpoint
    program: Program
    durability_seconds: float
    suspend_deadline_seconds: float
    identity: str
    sources: _containers.RepeatedCompositeFieldContainer[Source]
    result_checkpoint: str
    kept_parked: str
    start_allowance_seconds: float
    hung_seconds: float
    stalled: _types_pb2.OnStall
    processes: _types_pb2.Processes
    checkpoint_steps: int
    user: str
    never_anew: bool
    def __init__(self, trial: _Optional[str] = ..., attempt: _Optional[int] = ..., devices: _Optional[_Iterable[str]] = ..., quantum: _Optional[_Union[_types_pb2.Quantum, _Mapping]] = ..., reason: _Optional[str] = ..., parked_attempt: _Optional[int] = ..., checkpoint: _Optional[_Union[_types_pb2.Checkpoint, _Mapping]] = ..., program: _Optional[_Union[Program, _Mapping]] = ..., durability_seconds: _Optional[float] = ..., suspend_deadline_seconds: _Optional[float] = ..., identity: _Optional[str] = ..., sources: _Optional[_Iterable[_Union[Source, _Mapping]]] = ..., result_checkpoint: _Optional[str] = ..., kept_parked: _Optional[str] = ..., start_allowance_seconds: _Optional[float] = ..., hung_seconds: _Optional[float] = ..., stalled: _Optional[_Union[_types_pb2.OnStall, str]] = ..., processes: _Optional[_Union[_types_pb2.Processes, str]] = ..., checkpoint_steps: _Optional[int] = ..., user: _Optional[str] = ..., never_anew: bool = ...) -> None: ...

class Source(_message.Message):
    __slots__ = ("node", "address", "ticket")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    node: str
    address: str
    ticket: bytes
    def __init__(self, node: _Optional[str] = ..., address: _Optional[str] = ..., ticket: _Optional[bytes] = ...) -> None: ...

class CopyCheckpoint(_message.Message):
    __slots__ = ("checkpoint", "sources", "keep", "identity", "into", "parent_identity", "user")
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    INTO_FIELD_NUMBER: _ClassVar[int]
    PARENT_IDENTITY_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    checkpoint: _types_pb2.Checkpoint
    sources: _containers.RepeatedCompositeFieldContainer[Source]
    keep: _containers.RepeatedScalarFieldContainer[str]
    identity: str
    into: str
    parent_identity: str
    user: str
    def __init__(self, checkpoint: _Optional[_Union[_types_pb2.Checkpoint, _Mapping]] = ..., sources: _Optional[_Iterable[_Union[Source, _Mapping]]] = ..., keep: _Optional[_Iterable[str]] = ..., identity: _Optional[str] = ..., into: _Optional[str] = ..., parent_identity: _Optional[str] = ..., user: _Optional[str] = ...) -> None: ...

class DropCheckpoints(_message.Message):
    __slots__ = ("trial", "identity")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    trial: str
    identity: str
    def __init__(self, trial: _Optional[str] = ..., identity: _Optional[str] = ...) -> None: ...

class LookAt(_message.Message):
    __slots__ = ("paths", "venvs", "condas", "briefly")
    PATHS_FIELD_NUMBER: _ClassVar[int]
    VENVS_FIELD_NUMBER: _ClassVar[int]
    CONDAS_FIELD_NUMBER: _ClassVar[int]
    BRIEFLY_FIELD_NUMBER: _ClassVar[int]
    paths: _containers.RepeatedScalarFieldContainer[str]
    venvs: _containers.RepeatedCompositeFieldContainer[Venv]
    condas: _containers.RepeatedScalarFieldContainer[str]
    briefly: bool
    def __init__(self, paths: _Optional[_Iterable[str]] = ..., venvs: _Optional[_Iterable[_Union[Venv, _Mapping]]] = ..., condas: _Optional[_Iterable[str]] = ..., briefly: bool = ...) -> None: ...

class Venv(_message.Message):
    __slots__ = ("name", "python", "requirements")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    REQUIREMENTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    python: str
    requirements: str
    def __init__(self, name: _Optional[str] = ..., python: _Optional[str] = ..., requirements: _Optional[str] = ...) -> None: ...

class Program(_message.Message):
    __slots__ = ("argv", "python", "code_sha256", "environment", "parameters", "signal", "signal_goal", "seed", "submit_directory", "data", "requirements", "conda", "metrics", "keep", "stages", "forks")
    ARGV_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    CODE_SHA256_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_GOAL_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    REQUIREMENTS_FIELD_NUMBER: _ClassVar[int]
    CONDA_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    FORKS_FIELD_NUMBER: _ClassVar[int]
    argv: _containers.RepeatedScalarFieldContainer[str]
    python: str
    code_sha256: str
    environment: _containers.RepeatedCompositeFieldContainer[_types_pb2.NamedValue]
    parameters: _containers.RepeatedCompositeFieldContainer[_types_pb2.NamedValue]
    signal: str
    signal_goal: _types_pb2.Goal
    seed: int
    submit_directory: str
    data: _containers.RepeatedScalarFieldContainer[str]
    requirements: str
    conda: str
    metrics: _containers.RepeatedCompositeFieldContainer[_types_pb2.NamedValue]
    keep: _containers.RepeatedScalarFieldContainer[str]
    stages: _containers.RepeatedCompositeFieldContainer[Stage]
    forks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, argv: _Optional[_Iterable[str]] = ..., python: _Optional[str] = ..., code_sha256: _Optional[str] = ..., environment: _Optional[_Iterable[_Union[_types_pb2.NamedValue, _Mapping]]] = ..., parameters: _Optional[_Iterable[_Union[_types_pb2.NamedValue, _Mapping]]] = ..., signal: _Optional[str] = ..., signal_goal: _Optional[_Union[_types_pb2.Goal, str]] = ..., seed: _Optional[int] = ..., submit_directory: _Optional[str] = ..., data: _Optional[_Iterable[str]] = ..., requirements: _Optional[str] = ..., conda: _Optional[str] = ..., metrics: _Optional[_Iterable[_Union[_types_pb2.NamedValue, _Mapping]]] = ..., keep: _Optional[_Iterable[str]] = ..., stages: _Optional[_Iterable[_Union[Stage, _Mapping]]] = ..., forks: _Optional[_Iterable[int]] = ...) -> None: ...

class Stage(_message.Message):
    __slots__ = ("until_step", "values")
    UNTIL_STEP_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    until_step: int
    values: _containers.RepeatedCompositeFieldContainer[_types_pb2.NamedValue]
    def __init__(self, until_step: _Optional[int] = ..., values: _Optional[_Iterable[_Union[_types_pb2.NamedValue, _Mapping]]] = ...) -> None: ...

class Renew(_message.Message):
    __slots__ = ("trial", "attempt", "grant", "quantum", "reason", "extends")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    QUANTUM_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EXTENDS_FIELD_NUMBER: _ClassVar[int]
    trial: str
    attempt: int
    grant: int
    quantum: _types_pb2.Quantum
    reason: str
    extends: bool
    def __init__(self, trial: _Optional[str] = ..., attempt: _Optional[int] = ..., grant: _Optional[int] = ..., quantum: _Optional[_Union[_types_pb2.Quantum, _Mapping]] = ..., reason: _Optional[str] = ..., extends: bool = ...) -> None: ...

class SuspendRun(_message.Message):
    __slots__ = ("trial", "attempt", "tier", "deadline_seconds", "successor", "reason", "width")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SUCCESSOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    trial: str
    attempt: int
    tier: _types_pb2.Tier
    deadline_seconds: float
    successor: str
    reason: str
    width: int
    def __init__(self, trial: _Optional[str] = ..., attempt: _Optional[int] = ..., tier: _Optional[_Union[_types_pb2.Tier, str]] = ..., deadline_seconds: _Optional[float] = ..., successor: _Optional[str] = ..., reason: _Optional[str] = ..., width: _Optional[int] = ...) -> None: ...

class StopRun(_message.Message):
    __slots__ = ("trial", "attempt", "reason", "deadline_seconds")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    trial: str
    attempt: int
    reason: str
    deadline_seconds: float
    def __init__(self, trial: _Optional[str] = ..., attempt: _Optional[int] = ..., reason: _Optional[str] = ..., deadline_seconds: _Optional[float] = ...) -> None: ...

class KillRun(_message.Message):
    __slots__ = ("trial", "attempt", "reason")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    trial: str
    attempt: int
    reason: str
    def __init__(self, trial: _Optional[str] = ..., attempt: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class WriteDown(_message.Message):
    __slots__ = ("trial", "attempt")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    trial: str
    attempt: int
    def __init__(self, trial: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class SaveRun(_message.Message):
    __slots__ = ("trial", "attempt")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    trial: str
    attempt: int
    def __init__(self, trial: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class ReleaseTrial(_message.Message):
    __slots__ = ("trial", "forget")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    FORGET_FIELD_NUMBER: _ClassVar[int]
    trial: str
    forget: bool
    def __init__(self, trial: _Optional[str] = ..., forget: bool = ...) -> None: ...

class Upcoming(_message.Message):
    __slots__ = ("trials", "turns")
    TRIALS_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    trials: _containers.RepeatedScalarFieldContainer[str]
    turns: int
    def __init__(self, trials: _Optional[_Iterable[str]] = ..., turns: _Optional[int] = ...) -> None: ...

class RunStarted(_message.Message):
    __slots__ = ("trial", "attempt", "step", "start_seconds", "planned_steps")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    START_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PLANNED_STEPS_FIELD_NUMBER: _ClassVar[int]
    trial: str
    attempt: int
    step: int
    start_seconds: float
    planned_steps: int
    def __init__(self, trial: _Optional[str] = ..., attempt: _Optional[int] = ..., step: _Optional[int] = ..., start_seconds: _Optional[float] = ..., planned_steps: _Optional[int] = ...) -> None: ...

class LossChunk(_message.Message):
    __slots__ = ("first_step", "last_step", "count", "total", "low", "high")
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    first_step: int
    last_step: int
    count: int
    total: float
    low: float
    high: float
    def __init__(self, first_step: _Optional[int] = ..., last_step: _Optional[int] = ..., count: _Optional[int] = ..., total: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ...) -> None: ...

class MetricPoints(_message.Message):
    __slots__ = ("metrics", "counts", "steps", "values")
    METRICS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    metrics: _containers.RepeatedScalarFieldContainer[str]
    counts: _containers.RepeatedScalarFieldContainer[int]
    steps: _containers.RepeatedScalarFieldContainer[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, metrics: _Optional[_Iterable[str]] = ..., counts: _Optional[_Iterable[int]] = ..., steps: _Optional[_Iterable[int]] = ..., values: _Optional[_Iterable[float]] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("trial", "attempt", "step", "planned_steps", "chunks", "busy_seconds", "examples", "memory_bytes", "cpu_seconds", "not_finite", "number", "device_memory_bytes", "points", "passes")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    PLANNED_STEPS_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    BUSY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    NOT_FINITE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    DEVICE_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    PASSES_FIELD_NUMBER: _ClassVar[int]
    trial: str
    attempt: int
    step: int
    planned_steps: int
    chunks: _containers.RepeatedCompositeFieldContainer[LossChunk]
    busy_seconds: float
    examples: int
    memory_bytes: int
    cpu_seconds: float
    not_finite: bool
    number: int
    device_memory_bytes: int
    points: MetricPoints
    passes: int
    def __init__(self, trial: _Optional[str] = ..., attempt: _Optional[int] = ..., step: _Optional[int] = ..., planned_steps: _Optional[int] = ..., chunks: _Optional[_Iterable[_Union[LossChunk, _Mapping]]] = ..., busy_seconds: _Optional[float] = ..., examples: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., cpu_seconds: _Optional[float] = ..., not_finite: bool = ..., number: _Optional[int] = ..., device_memory_bytes: _Optional[int] = ..., points: _Optional[_Union[MetricPoints, _Mapping]] = ..., passes: _Optional[int] = ...) -> None: ...

class QuantumEnded(_message.Message):
    __slots__ = ("trial", "attempt", "grant", "step")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    trial: str
    attempt: int
    grant: int
    step: int
    def __init__(self, trial: _Optional[str] = ..., attempt: _Optional[int] = ..., grant: _Optional[int] = ..., step: _Optional[int] = ...) -> None: ...

class MilestonePassed(_message.Message):
    __slots__ = ("trial", "attempt", "percent", "loss", "step")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    trial: str
    attempt: int
    percent: float
    loss: float
    step: int
    def __init__(self, trial: _Optional[str] = ..., attempt: _Optional[int] = ..., percent: _Optional[float] = ..., loss: _Optional[float] = ..., step: _Optional[int] = ...) -> None: ...

class RunSuspended(_message.Message):
    __slots__ = ("trial", "attempt", "tier", "step", "checkpoint", "release_seconds", "cause", "memory_bytes")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    RELEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    trial: str
    attempt: int
    tier: _types_pb2.Tier
    step: int
    checkpoint: _types_pb2.Checkpoint
    release_seconds: float
    cause: str
    memory_bytes: int
    def __init__(self, trial: _Optional[str] = ..., attempt: _Optional[int] = ..., tier: _Optional[_Union[_types_pb2.Tier, str]] = ..., step: _Optional[int] = ..., checkpoint: _Optional[_Union[_types_pb2.Checkpoint, _Mapping]] = ..., release_seconds: _Optional[float] = ..., cause: _Optional[str] = ..., memory_bytes: _Optional[int] = ...) -> None: ...

class RunCompleted(_message.Message):
    __slots__ = ("trial", "attempt", "step", "checkpoint")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    trial: str
    attempt: int
    step: int
    checkpoint: _types_pb2.Checkpoint
    def __init__(self, trial: _Optional[str] = ..., attempt: _Optional[int] = ..., step: _Optional[int] = ..., checkpoint: _Optional[_Union[_types_pb2.Checkpoint, _Mapping]] = ...) -> None: ...

class RunFailed(_message.Message):
    __slots__ = ("trial", "attempt", "error_kind", "detail", "error_signature", "step", "newest_attempt", "rank", "devices")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ERROR_KIND_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    ERROR_SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    NEWEST_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    trial: str
    attempt: int
    error_kind: str
    detail: str
    error_signature: str
    step: int
    newest_attempt: int
    rank: int
    devices: int
    def __init__(self, trial: _Optional[str] = ..., attempt: _Optional[int] = ..., error_kind: _Optional[str] = ..., detail: _Optional[str] = ..., error_signature: _Optional[str] = ..., step: _Optional[int] = ..., newest_attempt: _Optional[int] = ..., rank: _Optional[int] = ..., devices: _Optional[int] = ...) -> None: ...

class Checkpointed(_message.Message):
    __slots__ = ("trial", "attempt", "checkpoint")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    trial: str
    attempt: int
    checkpoint: _types_pb2.Checkpoint
    def __init__(self, trial: _Optional[str] = ..., attempt: _Optional[int] = ..., checkpoint: _Optional[_Union[_types_pb2.Checkpoint, _Mapping]] = ...) -> None: ...

class FidelityKnown(_message.Message):
    __slots__ = ("trial", "attempt", "fidelity", "reason", "framework")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FIDELITY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FRAMEWORK_FIELD_NUMBER: _ClassVar[int]
    trial: str
    attempt: int
    fidelity: _types_pb2.Fidelity
    reason: str
    framework: str
    def __init__(self, trial: _Optional[str] = ..., attempt: _Optional[int] = ..., fidelity: _Optional[_Union[_types_pb2.Fidelity, str]] = ..., reason: _Optional[str] = ..., framework: _Optional[str] = ...) -> None: ...

class RunStalled(_message.Message):
    __slots__ = ("trial", "attempt", "step", "seconds")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    trial: str
    attempt: int
    step: int
    seconds: float
    def __init__(self, trial: _Optional[str] = ..., attempt: _Optional[int] = ..., step: _Optional[int] = ..., seconds: _Optional[float] = ...) -> None: ...

class NotSaved(_message.Message):
    __slots__ = ("trial", "attempt", "reason")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    trial: str
    attempt: int
    reason: str
    def __init__(self, trial: _Optional[str] = ..., attempt: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ParkLost(_message.Message):
    __slots__ = ("trial", "attempt", "reason")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    trial: str
    attempt: int
    reason: str
    def __init__(self, trial: _Optional[str] = ..., attempt: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class DeviceFailed(_message.Message):
    __slots__ = ("device", "reason")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    device: str
    reason: str
    def __init__(self, device: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Yielded(_message.Message):
    __slots__ = ("place", "reason", "parting")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PARTING_FIELD_NUMBER: _ClassVar[int]
    place: str
    reason: str
    parting: bool
    def __init__(self, place: _Optional[str] = ..., reason: _Optional[str] = ..., parting: bool = ...) -> None: ...

class Reclaimed(_message.Message):
    __slots__ = ("place",)
    PLACE_FIELD_NUMBER: _ClassVar[int]
    place: str
    def __init__(self, place: _Optional[str] = ...) -> None: ...

class Copied(_message.Message):
    __slots__ = ("node", "trial", "checkpoint")
    NODE_FIELD_NUMBER: _ClassVar[int]
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    node: str
    trial: str
    checkpoint: str
    def __init__(self, node: _Optional[str] = ..., trial: _Optional[str] = ..., checkpoint: _Optional[str] = ...) -> None: ...

class NotCopied(_message.Message):
    __slots__ = ("node", "trial", "checkpoint", "reason", "way")
    NODE_FIELD_NUMBER: _ClassVar[int]
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WAY_FIELD_NUMBER: _ClassVar[int]
    node: str
    trial: str
    checkpoint: str
    reason: str
    way: bool
    def __init__(self, node: _Optional[str] = ..., trial: _Optional[str] = ..., checkpoint: _Optional[str] = ..., reason: _Optional[str] = ..., way: bool = ...) -> None: ...

class Dropped(_message.Message):
    __slots__ = ("node", "trial")
    NODE_FIELD_NUMBER: _ClassVar[int]
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    node: str
    trial: str
    def __init__(self, node: _Optional[str] = ..., trial: _Optional[str] = ...) -> None: ...

class Spoilt(_message.Message):
    __slots__ = ("node", "trial", "checkpoint", "reason", "instead")
    NODE_FIELD_NUMBER: _ClassVar[int]
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    INSTEAD_FIELD_NUMBER: _ClassVar[int]
    node: str
    trial: str
    checkpoint: str
    reason: str
    instead: _types_pb2.Checkpoint
    def __init__(self, node: _Optional[str] = ..., trial: _Optional[str] = ..., checkpoint: _Optional[str] = ..., reason: _Optional[str] = ..., instead: _Optional[_Union[_types_pb2.Checkpoint, _Mapping]] = ...) -> None: ...

class Looked(_message.Message):
    __slots__ = ("node", "sights")
    NODE_FIELD_NUMBER: _ClassVar[int]
    SIGHTS_FIELD_NUMBER: _ClassVar[int]
    node: str
    sights: _containers.RepeatedCompositeFieldContainer[Sight]
    def __init__(self, node: _Optional[str] = ..., sights: _Optional[_Iterable[_Union[Sight, _Mapping]]] = ...) -> None: ...

class Sight(_message.Message):
    __slots__ = ("path", "reason")
    PATH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    path: str
    reason: str
    def __init__(self, path: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class UsageReport(_message.Message):
    __slots__ = ("devices", "warnings", "disk", "processes")
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    DISK_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    devices: _containers.RepeatedCompositeFieldContainer[DeviceUsage]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    disk: DiskUsage
    processes: _containers.RepeatedCompositeFieldContainer[TrialProcesses]
    def __init__(self, devices: _Optional[_Iterable[_Union[DeviceUsage, _Mapping]]] = ..., warnings: _Optional[_Iterable[str]] = ..., disk: _Optional[_Union[DiskUsage, _Mapping]] = ..., processes: _Optional[_Iterable[_Union[TrialProcesses, _Mapping]]] = ...) -> None: ...

class TrialProcesses(_message.Message):
    __slots__ = ("trial", "pids")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    PIDS_FIELD_NUMBER: _ClassVar[int]
    trial: str
    pids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, trial: _Optional[str] = ..., pids: _Optional[_Iterable[int]] = ...) -> None: ...

class DiskUsage(_message.Message):
    __slots__ = ("used_bytes", "budget_bytes", "evictions")
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    BUDGET_BYTES_FIELD_NUMBER: _ClassVar[int]
    EVICTIONS_FIELD_NUMBER: _ClassVar[int]
    used_bytes: int
    budget_bytes: int
    evictions: int
    def __init__(self, used_bytes: _Optional[int] = ..., budget_bytes: _Optional[int] = ..., evictions: _Optional[int] = ...) -> None: ...

class DeviceUsage(_message.Message):
    __slots__ = ("device", "usage")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    device: str
    usage: _types_pb2.Usage
    def __init__(self, device: _Optional[str] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ...) -> None: ...

class Holdings(_message.Message):
    __slots__ = ("trials",)
    TRIALS_FIELD_NUMBER: _ClassVar[int]
    trials: _containers.RepeatedCompositeFieldContainer[Holding]
    def __init__(self, trials: _Optional[_Iterable[_Union[Holding, _Mapping]]] = ...) -> None: ...

class Holding(_message.Message):
    __slots__ = ("trial", "identity", "checkpoint_step", "checkpoint_attempt")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_STEP_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    trial: str
    identity: str
    checkpoint_step: int
    checkpoint_attempt: int
    def __init__(self, trial: _Optional[str] = ..., identity: _Optional[str] = ..., checkpoint_step: _Optional[int] = ..., checkpoint_attempt: _Optional[int] = ...) -> None: ...

class Forget(_message.Message):
    __slots__ = ("trials",)
    TRIALS_FIELD_NUMBER: _ClassVar[int]
    trials: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, trials: _Optional[_Iterable[str]] = ...) -> None: ...

class SendFile(_message.Message):
    __slots__ = ("ticket", "trial", "log", "checkpoint", "work", "cancel")
    TICKET_FIELD_NUMBER: _ClassVar[int]
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    ticket: int
    trial: str
    log: LogRange
    checkpoint: str
    work: WorkFiles
    cancel: bool
    def __init__(self, ticket: _Optional[int] = ..., trial: _Optional[str] = ..., log: _Optional[_Union[LogRange, _Mapping]] = ..., checkpoint: _Optional[str] = ..., work: _Optional[_Union[WorkFiles, _Mapping]] = ..., cancel: bool = ...) -> None: ...

class WorkFiles(_message.Message):
    __slots__ = ("patterns", "names_only", "written_only")
    PATTERNS_FIELD_NUMBER: _ClassVar[int]
    NAMES_ONLY_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_ONLY_FIELD_NUMBER: _ClassVar[int]
    patterns: _containers.RepeatedScalarFieldContainer[str]
    names_only: bool
    written_only: bool
    def __init__(self, patterns: _Optional[_Iterable[str]] = ..., names_only: bool = ..., written_only: bool = ...) -> None: ...

class LogRange(_message.Message):
    __slots__ = ("offset", "follow", "rank")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    offset: int
    follow: bool
    rank: int
    def __init__(self, offset: _Optional[int] = ..., follow: bool = ..., rank: _Optional[int] = ...) -> None: ...

class FileChunk(_message.Message):
    __slots__ = ("ticket", "name", "offset", "data", "last", "error", "size_bytes", "modified_unix_seconds")
    TICKET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ticket: int
    name: str
    offset: int
    data: bytes
    last: bool
    error: str
    size_bytes: int
    modified_unix_seconds: float
    def __init__(self, ticket: _Optional[int] = ..., name: _Optional[str] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., last: bool = ..., error: _Optional[str] = ..., size_bytes: _Optional[int] = ..., modified_unix_seconds: _Optional[float] = ...) -> None: ...

class GetBlobRequest(_message.Message):
    __slots__ = ("sha256",)
    SHA256_FIELD_NUMBER: _ClassVar[int]
    sha256: str
    def __init__(self, sha256: _Optional[str] = ...) -> None: ...

class GetBlobResponse(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...
