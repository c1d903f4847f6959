from hermesd.pb.hermes.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PublicEventKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PUBLIC_EVENT_KIND_UNSPECIFIED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_SUBMITTED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_LAUNCHED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_STARTED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_REPORTED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_QUANTUM_ENDED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_MILESTONE_PASSED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_RENEWED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_SUSPEND_ASKED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_SUSPENDED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_CHECKPOINTED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_COMPLETED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_FAILED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_STOPPED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_CANCELLED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_PAUSED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_RESUMED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_EXTENDED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_RETRIED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_REMOVED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_NODE_JOINED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_NODE_SILENT: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_NODE_LOST: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_STUDY_FINISHED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_POLICY_FAILED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_DEVICE_FAILED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_NODE_DRAINED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_NODE_UNDRAINED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_QUARANTINED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_TRUSTED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_YIELDED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_RECLAIMED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_ADDED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_METRIC_CHOSEN: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_SIGNAL_CHOSEN: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_PARK_LOST: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_STALLED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_SEARCH_FAILED: _ClassVar[PublicEventKind]
    PUBLIC_EVENT_KIND_ASKED: _ClassVar[PublicEventKind]
PUBLIC_EVENT_KIND_UNSPECIFIED: PublicEventKind
PUBLIC_EVENT_KIND_SUBMITTED: PublicEventKind
PUBLIC_EVENT_KIND_LAUNCHED: PublicEventKind
PUBLIC_EVENT_KIND_STARTED: PublicEventKind
PUBLIC_EVENT_KIND_REPORTED: PublicEventKind
PUBLIC_EVENT_KIND_QUANTUM_ENDED: PublicEventKind
PUBLIC_EVENT_KIND_MILESTONE_PASSED: PublicEventKind
PUBLIC_EVENT_KIND_RENEWED: PublicEventKind
PUBLIC_EVENT_KIND_SUSPEND_ASKED: PublicEventKind
PUBLIC_EVENT_KIND_SUSPENDED: PublicEventKind
PUBLIC_EVENT_KIND_CHECKPOINTED: PublicEventKind
PUBLIC_EVENT_KIND_COMPLETED: PublicEventKind
PUBLIC_EVENT_KIND_FAILED: PublicEventKind
PUBLIC_EVENT_KIND_STOPPED: PublicEventKind
PUBLIC_EVENT_KIND_CANCELLED: PublicEventKind
PUBLIC_EVENT_KIND_PAUSED: PublicEventKind
PUBLIC_EVENT_KIND_RESUMED: PublicEventKind
PUBLIC_EVENT_KIND_EXTENDED: PublicEventKind
PUBLIC_EVENT_KIND_RETRIED: PublicEventKind
PUBLIC_EVENT_KIND_REMOVED: PublicEventKind
PUBLIC_EVENT_KIND_NODE_JOINED: PublicEventKind
PUBLIC_EVENT_KIND_NODE_SILENT: PublicEventKind
PUBLIC_EVENT_KIND_NODE_LOST: PublicEventKind
PUBLIC_EVENT_KIND_STUDY_FINISHED: PublicEventKind
PUBLIC_EVENT_KIND_POLICY_FAILED: PublicEventKind
PUBLIC_EVENT_KIND_DEVICE_FAILED: PublicEventKind
PUBLIC_EVENT_KIND_NODE_DRAINED: PublicEventKind
PUBLIC_EVENT_KIND_NODE_UNDRAINED: PublicEventKind
PUBLIC_EVENT_KIND_QUARANTINED: PublicEventKind
PUBLIC_EVENT_KIND_TRUSTED: PublicEventKind
PUBLIC_EVENT_KIND_YIELDED: PublicEventKind
PUBLIC_EVENT_KIND_RECLAIMED: PublicEventKind
PUBLIC_EVENT_KIND_ADDED: PublicEventKind
PUBLIC_EVENT_KIND_METRIC_CHOSEN: PublicEventKind
PUBLIC_EVENT_KIND_SIGNAL_CHOSEN: PublicEventKind
PUBLIC_EVENT_KIND_PARK_LOST: PublicEventKind
PUBLIC_EVENT_KIND_STALLED: PublicEventKind
PUBLIC_EVENT_KIND_SEARCH_FAILED: PublicEventKind
PUBLIC_EVENT_KIND_ASKED: PublicEventKind

class FieldError(_message.Message):
    __slots__ = ("field_path", "value", "expected", "nearest")
    FIELD_PATH_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    NEAREST_FIELD_NUMBER: _ClassVar[int]
    field_path: str
    value: str
    expected: str
    nearest: str
    def __init__(self, field_path: _Optional[str] = ..., value: _Optional[str] = ..., expected: _Optional[str] = ..., nearest: _Optional[str] = ...) -> None: ...

class FieldErrors(_message.Message):
    __slots__ = ("errors",)
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedCompositeFieldContainer[FieldError]
    def __init__(self, errors: _Optional[_Iterable[_Union[FieldError, _Mapping]]] = ...) -> None: ...

class SubmitStudyRequest(_message.Message):
    __slots__ = ("request_id", "spec", "code_sha256", "submit_directory", "validate_only", "again", "environment", "given_environment", "environment_of", "code_identity_sha256", "program_sha256")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    CODE_SHA256_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    GIVEN_ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_OF_FIELD_NUMBER: _ClassVar[int]
    CODE_IDENTITY_SHA256_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_SHA256_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    spec: _types_pb2.StudySpec
    code_sha256: str
    submit_directory: str
    validate_only: bool
    again: bool
    environment: _containers.RepeatedCompositeFieldContainer[_types_pb2.NamedValue]
    given_environment: _containers.RepeatedCompositeFieldContainer[_types_pb2.NamedValue]
    environment_of: str
    code_identity_sha256: str
    program_sha256: str
    def __init__(self, request_id: _Optional[str] = ..., spec: _Optional[_Union[_types_pb2.StudySpec, _Mapping]] = ..., code_sha256: _Optional[str] = ..., submit_directory: _Optional[str] = ..., validate_only: bool = ..., again: bool = ..., environment: _Optional[_Iterable[_Union[_types_pb2.NamedValue, _Mapping]]] = ..., given_environment: _Optional[_Iterable[_Union[_types_pb2.NamedValue, _Mapping]]] = ..., environment_of: _Optional[str] = ..., code_identity_sha256: _Optional[str] = ..., program_sha256: _Optional[str] = ...) -> None: ...

class SubmitStudyResponse(_message.Message):
    __slots__ = ("study", "trials", "identical_to", "notes", "policy", "placement", "fitting_devices", "misfits")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    TRIALS_FIELD_NUMBER: _ClassVar[int]
    IDENTICAL_TO_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    FITTING_DEVICES_FIELD_NUMBER: _ClassVar[int]
    MISFITS_FIELD_NUMBER: _ClassVar[int]
    study: str
    trials: _containers.RepeatedCompositeFieldContainer[Trial]
    identical_to: str
    notes: _containers.RepeatedScalarFieldContainer[str]
    policy: _types_pb2.Plugin
    placement: _types_pb2.Plugin
    fitting_devices: int
    misfits: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, study: _Optional[str] = ..., trials: _Optional[_Iterable[_Union[Trial, _Mapping]]] = ..., identical_to: _Optional[str] = ..., notes: _Optional[_Iterable[str]] = ..., policy: _Optional[_Union[_types_pb2.Plugin, _Mapping]] = ..., placement: _Optional[_Union[_types_pb2.Plugin, _Mapping]] = ..., fitting_devices: _Optional[int] = ..., misfits: _Optional[_Iterable[str]] = ...) -> None: ...

class PutBlobRequest(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class PutBlobResponse(_message.Message):
    __slots__ = ("sha256", "size_bytes")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    sha256: str
    size_bytes: int
    def __init__(self, sha256: _Optional[str] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class Study(_message.Message):
    __slots__ = ("id", "spec", "owner", "submitted_unix_seconds", "counts", "best_trial", "best_metric", "busy_seconds", "overhead_seconds", "preemptions", "remaining_seconds", "finished", "finished_unix_seconds", "checkpoint_bytes", "code_sha256", "submit_directory", "paused", "ranking", "pool", "policy", "placement", "waits_for", "reported", "program_sha256", "notices", "deciding", "steps", "trained_steps", "trials_wanted", "remaining_least_seconds", "remaining_most_seconds", "signal")
    ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    BEST_TRIAL_FIELD_NUMBER: _ClassVar[int]
    BEST_METRIC_FIELD_NUMBER: _ClassVar[int]
    BUSY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    OVERHEAD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    REMAINING_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CODE_SHA256_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    RANKING_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    REPORTED_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_SHA256_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    DECIDING_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    TRAINED_STEPS_FIELD_NUMBER: _ClassVar[int]
    TRIALS_WANTED_FIELD_NUMBER: _ClassVar[int]
    REMAINING_LEAST_SECONDS_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MOST_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    id: str
    spec: _types_pb2.StudySpec
    owner: str
    submitted_unix_seconds: float
    counts: _containers.RepeatedCompositeFieldContainer[StateCount]
    best_trial: str
    best_metric: float
    busy_seconds: float
    overhead_seconds: float
    preemptions: int
    remaining_seconds: float
    finished: bool
    finished_unix_seconds: float
    checkpoint_bytes: int
    code_sha256: str
    submit_directory: str
    paused: bool
    ranking: Ranking
    pool: str
    policy: _types_pb2.Plugin
    placement: _types_pb2.Plugin
    waits_for: str
    reported: _containers.RepeatedScalarFieldContainer[str]
    program_sha256: str
    notices: _containers.RepeatedScalarFieldContainer[str]
    deciding: _types_pb2.Plugin
    steps: int
    trained_steps: int
    trials_wanted: int
    remaining_least_seconds: float
    remaining_most_seconds: float
    signal: str
    def __init__(self, id: _Optional[str] = ..., spec: _Optional[_Union[_types_pb2.StudySpec, _Mapping]] = ..., owner: _Optional[str] = ..., submitted_unix_seconds: _Optional[float] = ..., counts: _Optional[_Iterable[_Union[StateCount, _Mapping]]] = ..., best_trial: _Optional[str] = ..., best_metric: _Optional[float] = ..., busy_seconds: _Optional[float] = ..., overhead_seconds: _Optional[float] = ..., preemptions: _Optional[int] = ..., remaining_seconds: _Optional[float] = ..., finished: bool = ..., finished_unix_seconds: _Optional[float] = ..., checkpoint_bytes: _Optional[int] = ..., code_sha256: _Optional[str] = ..., submit_directory: _Optional[str] = ..., paused: bool = ..., ranking: _Optional[_Union[Ranking, _Mapping]] = ..., pool: _Optional[str] = ..., policy: _Optional[_Union[_types_pb2.Plugin, _Mapping]] = ..., placement: _Optional[_Union[_types_pb2.Plugin, _Mapping]] = ..., waits_for: _Optional[str] = ..., reported: _Optional[_Iterable[str]] = ..., program_sha256: _Optional[str] = ..., notices: _Optional[_Iterable[str]] = ..., deciding: _Optional[_Union[_types_pb2.Plugin, _Mapping]] = ..., steps: _Optional[int] = ..., trained_steps: _Optional[int] = ..., trials_wanted: _Optional[int] = ..., remaining_least_seconds: _Optional[float] = ..., remaining_most_seconds: _Optional[float] = ..., signal: _Optional[str] = ...) -> None: ...

class Ranking(_message.Message):
    __slots__ = ("metric", "reason")
    METRIC_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    metric: _types_pb2.Metric
    reason: str
    def __init__(self, metric: _Optional[_Union[_types_pb2.Metric, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class StateCount(_message.Message):
    __slots__ = ("state", "count")
    STATE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    state: _types_pb2.TrialState
    count: int
    def __init__(self, state: _Optional[_Union[_types_pb2.TrialState, str]] = ..., count: _Optional[int] = ...) -> None: ...

class Trial(_message.Message):
    __slots__ = ("id", "study", "number", "state", "paused", "parameters", "step", "planned_steps", "signal", "metric", "metrics", "attempt", "preemptions", "device", "quantum", "kept_tier", "kept_node", "fidelity", "fidelity_reason", "busy_seconds", "overhead_seconds", "checkpoint", "failures", "reason", "examples_per_second", "steps_per_second", "memory_bytes", "cpu_use", "milestone_percent", "rank", "framework", "argv", "last_run_reason", "not_extended", "stalled_since_unix_seconds", "tags", "note", "expected_steps", "remaining_seconds", "forked_from", "forked_at_step", "rides_on", "shared_steps", "shared_out_seconds", "widths", "resizes", "replaced_by", "device_memory_bytes")
    ID_FIELD_NUMBER: _ClassVar[int]
    STUDY_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    PLANNED_STEPS_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    QUANTUM_FIELD_NUMBER: _ClassVar[int]
    KEPT_TIER_FIELD_NUMBER: _ClassVar[int]
    KEPT_NODE_FIELD_NUMBER: _ClassVar[int]
    FIDELITY_FIELD_NUMBER: _ClassVar[int]
    FIDELITY_REASON_FIELD_NUMBER: _ClassVar[int]
    BUSY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    OVERHEAD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    STEPS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_USE_FIELD_NUMBER: _ClassVar[int]
    MILESTONE_PERCENT_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    FRAMEWORK_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    LAST_RUN_REASON_FIELD_NUMBER: _ClassVar[int]
    NOT_EXTENDED_FIELD_NUMBER: _ClassVar[int]
    STALLED_SINCE_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_STEPS_FIELD_NUMBER: _ClassVar[int]
    REMAINING_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FORKED_FROM_FIELD_NUMBER: _ClassVar[int]
    FORKED_AT_STEP_FIELD_NUMBER: _ClassVar[int]
    RIDES_ON_FIELD_NUMBER: _ClassVar[int]
    SHARED_STEPS_FIELD_NUMBER: _ClassVar[int]
    SHARED_OUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WIDTHS_FIELD_NUMBER: _ClassVar[int]
    RESIZES_FIELD_NUMBER: _ClassVar[int]
    REPLACED_BY_FIELD_NUMBER: _ClassVar[int]
    DEVICE_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    id: str
    study: str
    number: int
    state: _types_pb2.TrialState
    paused: bool
    parameters: _containers.RepeatedCompositeFieldContainer[_types_pb2.NamedValue]
    step: int
    planned_steps: int
    signal: float
    metric: float
    metrics: _containers.RepeatedCompositeFieldContainer[MetricValue]
    attempt: int
    preemptions: int
    device: str
    quantum: _types_pb2.Quantum
    kept_tier: _types_pb2.Tier
    kept_node: str
    fidelity: _types_pb2.Fidelity
    fidelity_reason: str
    busy_seconds: float
    overhead_seconds: float
    checkpoint: _types_pb2.Checkpoint
    failures: _containers.RepeatedCompositeFieldContainer[Failure]
    reason: str
    examples_per_second: float
    steps_per_second: float
    memory_bytes: int
    cpu_use: float
    milestone_percent: float
    rank: int
    framework: str
    argv: _containers.RepeatedScalarFieldContainer[str]
    last_run_reason: str
    not_extended: str
    stalled_since_unix_seconds: float
    tags: _containers.RepeatedScalarFieldContainer[str]
    note: str
    expected_steps: int
    remaining_seconds: float
    forked_from: str
    forked_at_step: int
    rides_on: str
    shared_steps: int
    shared_out_seconds: float
    widths: _containers.RepeatedCompositeFieldContainer[WidthSpeed]
    resizes: int
    replaced_by: str
    device_memory_bytes: int
    def __init__(self, id: _Optional[str] = ..., study: _Optional[str] = ..., number: _Optional[int] = ..., state: _Optional[_Union[_types_pb2.TrialState, str]] = ..., paused: bool = ..., parameters: _Optional[_Iterable[_Union[_types_pb2.NamedValue, _Mapping]]] = ..., step: _Optional[int] = ..., planned_steps: _Optional[int] = ..., signal: _Optional[float] = ..., metric: _Optional[float] = ..., metrics: _Optional[_Iterable[_Union[MetricValue, _Mapping]]] = ..., attempt: _Optional[int] = ..., preemptions: _Optional[int] = ..., device: _Optional[str] = ..., quantum: _Optional[_Union[_types_pb2.Quantum, _Mapping]] = ..., kept_tier: _Optional[_Union[_types_pb2.Tier, str]] = ..., kept_node: _Optional[str] = ..., fidelity: _Optional[_Union[_types_pb2.Fidelity, str]] = ..., fidelity_reason: _Optional[str] = ..., busy_seconds: _Optional[float] = ..., overhead_seconds: _Optional[float] = ..., checkpoint: _Optional[_Union[_types_pb2.Checkpoint, _Mapping]] = ..., failures: _Optional[_Iterable[_Union[Failure, _Mapping]]] = ..., reason: _Optional[str] = ..., examples_per_second: _Optional[float] = ..., steps_per_second: _Optional[float] = ..., memory_bytes: _Optional[int] = ..., cpu_use: _Optional[float] = ..., milestone_percent: _Optional[float] = ..., rank: _Optional[int] = ..., framework: _Optional[str] = ..., argv: _Optional[_Iterable[str]] = ..., last_run_reason: _Optional[str] = ..., not_extended: _Optional[str] = ..., stalled_since_unix_seconds: _Optional[float] = ..., tags: _Optional[_Iterable[str]] = ..., note: _Optional[str] = ..., expected_steps: _Optional[int] = ..., remaining_seconds: _Optional[float] = ..., forked_from: _Optional[str] = ..., forked_at_step: _Optional[int] = ..., rides_on: _Optional[str] = ..., shared_steps: _Optional[int] = ..., shared_out_seconds: _Optional[float] = ..., widths: _Optional[_Iterable[_Union[WidthSpeed, _Mapping]]] = ..., resizes: _Optional[int] = ..., replaced_by: _Optional[str] = ..., device_memory_bytes: _Optional[int] = ...) -> None: ...

class WidthSpeed(_message.Message):
    __slots__ = ("devices", "steps_per_second")
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    STEPS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    devices: int
    steps_per_second: float
    def __init__(self, devices: _Optional[int] = ..., steps_per_second: _Optional[float] = ...) -> None: ...

class MetricValue(_message.Message):
    __slots__ = ("name", "last", "best", "low", "high")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    BEST_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    name: str
    last: float
    best: float
    low: float
    high: float
    def __init__(self, name: _Optional[str] = ..., last: _Optional[float] = ..., best: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("device", "error_kind", "detail", "step", "at_unix_seconds", "attempt")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    ERROR_KIND_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    AT_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    device: str
    error_kind: str
    detail: str
    step: int
    at_unix_seconds: float
    attempt: int
    def __init__(self, device: _Optional[str] = ..., error_kind: _Optional[str] = ..., detail: _Optional[str] = ..., step: _Optional[int] = ..., at_unix_seconds: _Optional[float] = ..., attempt: _Optional[int] = ...) -> None: ...

class GetStudyRequest(_message.Message):
    __slots__ = ("study",)
    STUDY_FIELD_NUMBER: _ClassVar[int]
    study: str
    def __init__(self, study: _Optional[str] = ...) -> None: ...

class GetStudyResponse(_message.Message):
    __slots__ = ("study", "trials", "next_up", "journal_sequence")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    TRIALS_FIELD_NUMBER: _ClassVar[int]
    NEXT_UP_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    study: Study
    trials: _containers.RepeatedCompositeFieldContainer[Trial]
    next_up: _containers.RepeatedScalarFieldContainer[str]
    journal_sequence: int
    def __init__(self, study: _Optional[_Union[Study, _Mapping]] = ..., trials: _Optional[_Iterable[_Union[Trial, _Mapping]]] = ..., next_up: _Optional[_Iterable[str]] = ..., journal_sequence: _Optional[int] = ...) -> None: ...

class ListStudiesRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListStudiesResponse(_message.Message):
    __slots__ = ("studies", "next_page_token")
    STUDIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    studies: _containers.RepeatedCompositeFieldContainer[Study]
    next_page_token: str
    def __init__(self, studies: _Optional[_Iterable[_Union[Study, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetTrialRequest(_message.Message):
    __slots__ = ("trial",)
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    trial: str
    def __init__(self, trial: _Optional[str] = ...) -> None: ...

class GetTrialResponse(_message.Message):
    __slots__ = ("trial", "output_tail", "usage", "parked_memory", "pids")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TAIL_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    PARKED_MEMORY_FIELD_NUMBER: _ClassVar[int]
    PIDS_FIELD_NUMBER: _ClassVar[int]
    trial: Trial
    output_tail: str
    usage: _containers.RepeatedCompositeFieldContainer[_types_pb2.Usage]
    parked_memory: str
    pids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, trial: _Optional[_Union[Trial, _Mapping]] = ..., output_tail: _Optional[str] = ..., usage: _Optional[_Iterable[_Union[_types_pb2.Usage, _Mapping]]] = ..., parked_memory: _Optional[str] = ..., pids: _Optional[_Iterable[int]] = ...) -> None: ...

class ListTrialsRequest(_message.Message):
    __slots__ = ("study", "page_size", "page_token")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    study: str
    page_size: int
    page_token: str
    def __init__(self, study: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTrialsResponse(_message.Message):
    __slots__ = ("trials", "next_page_token")
    TRIALS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    trials: _containers.RepeatedCompositeFieldContainer[Trial]
    next_page_token: str
    def __init__(self, trials: _Optional[_Iterable[_Union[Trial, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("id", "connected", "devices", "facts", "version", "silent_seconds", "draining", "parked", "stuck", "only_copies", "quarantine", "exclusions", "pool", "resting", "lacking", "warnings", "lost")
    ID_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SILENT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    STUCK_FIELD_NUMBER: _ClassVar[int]
    ONLY_COPIES_FIELD_NUMBER: _ClassVar[int]
    QUARANTINE_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIONS_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    RESTING_FIELD_NUMBER: _ClassVar[int]
    LACKING_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    id: str
    connected: bool
    devices: _containers.RepeatedCompositeFieldContainer[DeviceStatus]
    facts: _containers.RepeatedScalarFieldContainer[str]
    version: str
    silent_seconds: float
    draining: bool
    parked: _containers.RepeatedScalarFieldContainer[str]
    stuck: _containers.RepeatedScalarFieldContainer[str]
    only_copies: int
    quarantine: Quarantine
    exclusions: _containers.RepeatedCompositeFieldContainer[Exclusion]
    pool: str
    resting: str
    lacking: _containers.RepeatedScalarFieldContainer[str]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    lost: bool
    def __init__(self, id: _Optional[str] = ..., connected: bool = ..., devices: _Optional[_Iterable[_Union[DeviceStatus, _Mapping]]] = ..., facts: _Optional[_Iterable[str]] = ..., version: _Optional[str] = ..., silent_seconds: _Optional[float] = ..., draining: bool = ..., parked: _Optional[_Iterable[str]] = ..., stuck: _Optional[_Iterable[str]] = ..., only_copies: _Optional[int] = ..., quarantine: _Optional[_Union[Quarantine, _Mapping]] = ..., exclusions: _Optional[_Iterable[_Union[Exclusion, _Mapping]]] = ..., pool: _Optional[str] = ..., resting: _Optional[str] = ..., lacking: _Optional[_Iterable[str]] = ..., warnings: _Optional[_Iterable[str]] = ..., lost: bool = ...) -> None: ...

class Exclusion(_message.Message):
    __slots__ = ("study", "reason")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    study: str
    reason: str
    def __init__(self, study: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Quarantine(_message.Message):
    __slots__ = ("until_unix_seconds", "reason")
    UNTIL_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    until_unix_seconds: float
    reason: str
    def __init__(self, until_unix_seconds: _Optional[float] = ..., reason: _Optional[str] = ...) -> None: ...

class Strike(_message.Message):
    __slots__ = ("trial", "error_kind", "detail", "at_unix_seconds")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ERROR_KIND_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    AT_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    trial: str
    error_kind: str
    detail: str
    at_unix_seconds: float
    def __init__(self, trial: _Optional[str] = ..., error_kind: _Optional[str] = ..., detail: _Optional[str] = ..., at_unix_seconds: _Optional[float] = ...) -> None: ...

class DeviceStatus(_message.Message):
    __slots__ = ("device", "trial", "reserved_for", "healthy", "reason", "usage", "busy_seconds", "quarantine", "strikes", "yielded", "others", "speed", "comparisons")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    RESERVED_FOR_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    BUSY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    QUARANTINE_FIELD_NUMBER: _ClassVar[int]
    STRIKES_FIELD_NUMBER: _ClassVar[int]
    YIELDED_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    SPEED_FIELD_NUMBER: _ClassVar[int]
    COMPARISONS_FIELD_NUMBER: _ClassVar[int]
    device: _types_pb2.Device
    trial: str
    reserved_for: str
    healthy: bool
    reason: str
    usage: _types_pb2.Usage
    busy_seconds: float
    quarantine: Quarantine
    strikes: _containers.RepeatedCompositeFieldContainer[Strike]
    yielded: str
    others: bool
    speed: float
    comparisons: int
    def __init__(self, device: _Optional[_Union[_types_pb2.Device, _Mapping]] = ..., trial: _Optional[str] = ..., reserved_for: _Optional[str] = ..., healthy: bool = ..., reason: _Optional[str] = ..., usage: _Optional[_Union[_types_pb2.Usage, _Mapping]] = ..., busy_seconds: _Optional[float] = ..., quarantine: _Optional[_Union[Quarantine, _Mapping]] = ..., strikes: _Optional[_Iterable[_Union[Strike, _Mapping]]] = ..., yielded: _Optional[str] = ..., others: bool = ..., speed: _Optional[float] = ..., comparisons: _Optional[int] = ...) -> None: ...

class ListNodesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListNodesResponse(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    def __init__(self, nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ...) -> None: ...

class DrainNodeRequest(_message.Message):
    __slots__ = ("request_id", "node")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    node: str
    def __init__(self, request_id: _Optional[str] = ..., node: _Optional[str] = ...) -> None: ...

class DrainNodeResponse(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: Node
    def __init__(self, node: _Optional[_Union[Node, _Mapping]] = ...) -> None: ...

class UndrainNodeRequest(_message.Message):
    __slots__ = ("request_id", "node")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    node: str
    def __init__(self, request_id: _Optional[str] = ..., node: _Optional[str] = ...) -> None: ...

class UndrainNodeResponse(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: Node
    def __init__(self, node: _Optional[_Union[Node, _Mapping]] = ...) -> None: ...

class LoseNodeRequest(_message.Message):
    __slots__ = ("request_id", "node", "for_good")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    FOR_GOOD_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    node: str
    for_good: bool
    def __init__(self, request_id: _Optional[str] = ..., node: _Optional[str] = ..., for_good: bool = ...) -> None: ...

class LoseNodeResponse(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: Node
    def __init__(self, node: _Optional[_Union[Node, _Mapping]] = ...) -> None: ...

class ReleaseNodeRequest(_message.Message):
    __slots__ = ("request_id", "node", "device")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    node: str
    device: str
    def __init__(self, request_id: _Optional[str] = ..., node: _Optional[str] = ..., device: _Optional[str] = ...) -> None: ...

class ReleaseNodeResponse(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: Node
    def __init__(self, node: _Optional[_Union[Node, _Mapping]] = ...) -> None: ...

class GetCurveRequest(_message.Message):
    __slots__ = ("trial", "metric", "max_points")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    MAX_POINTS_FIELD_NUMBER: _ClassVar[int]
    trial: str
    metric: str
    max_points: int
    def __init__(self, trial: _Optional[str] = ..., metric: _Optional[str] = ..., max_points: _Optional[int] = ...) -> None: ...

class GetCurveResponse(_message.Message):
    __slots__ = ("metric", "steps", "values", "metrics_available")
    METRIC_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    METRICS_AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    metric: str
    steps: _containers.RepeatedScalarFieldContainer[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    metrics_available: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, metric: _Optional[str] = ..., steps: _Optional[_Iterable[int]] = ..., values: _Optional[_Iterable[float]] = ..., metrics_available: _Optional[_Iterable[str]] = ...) -> None: ...

class ExplainTrialRequest(_message.Message):
    __slots__ = ("trial",)
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    trial: str
    def __init__(self, trial: _Optional[str] = ...) -> None: ...

class ExplainTrialResponse(_message.Message):
    __slots__ = ("trial", "summary", "ranking", "last_decision", "policy", "left_out", "notices", "earlier_studies")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    RANKING_FIELD_NUMBER: _ClassVar[int]
    LAST_DECISION_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    EARLIER_STUDIES_FIELD_NUMBER: _ClassVar[int]
    trial: str
    summary: str
    ranking: _containers.RepeatedCompositeFieldContainer[RankedTrial]
    last_decision: str
    policy: str
    left_out: _containers.RepeatedCompositeFieldContainer[LeftOut]
    notices: _containers.RepeatedScalarFieldContainer[str]
    earlier_studies: str
    def __init__(self, trial: _Optional[str] = ..., summary: _Optional[str] = ..., ranking: _Optional[_Iterable[_Union[RankedTrial, _Mapping]]] = ..., last_decision: _Optional[str] = ..., policy: _Optional[str] = ..., left_out: _Optional[_Iterable[_Union[LeftOut, _Mapping]]] = ..., notices: _Optional[_Iterable[str]] = ..., earlier_studies: _Optional[str] = ...) -> None: ...

class LeftOut(_message.Message):
    __slots__ = ("place", "reason", "until_unix_seconds")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    UNTIL_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    place: str
    reason: str
    until_unix_seconds: float
    def __init__(self, place: _Optional[str] = ..., reason: _Optional[str] = ..., until_unix_seconds: _Optional[float] = ...) -> None: ...

class RankedTrial(_message.Message):
    __slots__ = ("trial", "words", "state")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    trial: str
    words: str
    state: _types_pb2.TrialState
    def __init__(self, trial: _Optional[str] = ..., words: _Optional[str] = ..., state: _Optional[_Union[_types_pb2.TrialState, str]] = ...) -> None: ...

class BestTrialsRequest(_message.Message):
    __slots__ = ("study", "count", "metric")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    study: str
    count: int
    metric: _types_pb2.Metric
    def __init__(self, study: _Optional[str] = ..., count: _Optional[int] = ..., metric: _Optional[_Union[_types_pb2.Metric, _Mapping]] = ...) -> None: ...

class BestTrialsResponse(_message.Message):
    __slots__ = ("study", "trials", "ranking", "objectives", "front")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    TRIALS_FIELD_NUMBER: _ClassVar[int]
    RANKING_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVES_FIELD_NUMBER: _ClassVar[int]
    FRONT_FIELD_NUMBER: _ClassVar[int]
    study: str
    trials: _containers.RepeatedCompositeFieldContainer[Trial]
    ranking: Ranking
    objectives: _containers.RepeatedCompositeFieldContainer[_types_pb2.Objective]
    front: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, study: _Optional[str] = ..., trials: _Optional[_Iterable[_Union[Trial, _Mapping]]] = ..., ranking: _Optional[_Union[Ranking, _Mapping]] = ..., objectives: _Optional[_Iterable[_Union[_types_pb2.Objective, _Mapping]]] = ..., front: _Optional[_Iterable[str]] = ...) -> None: ...

class Selection(_message.Message):
    __slots__ = ("study", "trials")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    TRIALS_FIELD_NUMBER: _ClassVar[int]
    study: str
    trials: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, study: _Optional[str] = ..., trials: _Optional[_Iterable[str]] = ...) -> None: ...

class PauseTrialsRequest(_message.Message):
    __slots__ = ("request_id", "selection")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    selection: Selection
    def __init__(self, request_id: _Optional[str] = ..., selection: _Optional[_Union[Selection, _Mapping]] = ...) -> None: ...

class PauseTrialsResponse(_message.Message):
    __slots__ = ("trials",)
    TRIALS_FIELD_NUMBER: _ClassVar[int]
    trials: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, trials: _Optional[_Iterable[str]] = ...) -> None: ...

class ResumeTrialsRequest(_message.Message):
    __slots__ = ("request_id", "selection")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    selection: Selection
    def __init__(self, request_id: _Optional[str] = ..., selection: _Optional[_Union[Selection, _Mapping]] = ...) -> None: ...

class ResumeTrialsResponse(_message.Message):
    __slots__ = ("trials",)
    TRIALS_FIELD_NUMBER: _ClassVar[int]
    trials: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, trials: _Optional[_Iterable[str]] = ...) -> None: ...

class StopTrialsRequest(_message.Message):
    __slots__ = ("request_id", "selection")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    selection: Selection
    def __init__(self, request_id: _Optional[str] = ..., selection: _Optional[_Union[Selection, _Mapping]] = ...) -> None: ...

class StopTrialsResponse(_message.Message):
    __slots__ = ("trials", "notes")
    TRIALS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    trials: _containers.RepeatedScalarFieldContainer[str]
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, trials: _Optional[_Iterable[str]] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class RetryTrialsRequest(_message.Message):
    __slots__ = ("request_id", "selection")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    selection: Selection
    def __init__(self, request_id: _Optional[str] = ..., selection: _Optional[_Union[Selection, _Mapping]] = ...) -> None: ...

class RetryTrialsResponse(_message.Message):
    __slots__ = ("trials",)
    TRIALS_FIELD_NUMBER: _ClassVar[int]
    trials: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, trials: _Optional[_Iterable[str]] = ...) -> None: ...

class ExtendStudyRequest(_message.Message):
    __slots__ = ("request_id", "selection", "stop", "parameters", "new_parameters", "run_cap", "axes")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    NEW_PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    RUN_CAP_FIELD_NUMBER: _ClassVar[int]
    AXES_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    selection: Selection
    stop: _types_pb2.Stop
    parameters: _containers.RepeatedCompositeFieldContainer[_types_pb2.NamedValue]
    new_parameters: _containers.RepeatedCompositeFieldContainer[_types_pb2.NamedValue]
    run_cap: int
    axes: _containers.RepeatedCompositeFieldContainer[_types_pb2.Parameter]
    def __init__(self, request_id: _Optional[str] = ..., selection: _Optional[_Union[Selection, _Mapping]] = ..., stop: _Optional[_Union[_types_pb2.Stop, _Mapping]] = ..., parameters: _Optional[_Iterable[_Union[_types_pb2.NamedValue, _Mapping]]] = ..., new_parameters: _Optional[_Iterable[_Union[_types_pb2.NamedValue, _Mapping]]] = ..., run_cap: _Optional[int] = ..., axes: _Optional[_Iterable[_Union[_types_pb2.Parameter, _Mapping]]] = ...) -> None: ...

class ExtendStudyResponse(_message.Message):
    __slots__ = ("trials", "notes")
    TRIALS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    trials: _containers.RepeatedScalarFieldContainer[str]
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, trials: _Optional[_Iterable[str]] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class MarkTrialsRequest(_message.Message):
    __slots__ = ("request_id", "selection", "add_tags", "remove_tags", "note")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    ADD_TAGS_FIELD_NUMBER: _ClassVar[int]
    REMOVE_TAGS_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    selection: Selection
    add_tags: _containers.RepeatedScalarFieldContainer[str]
    remove_tags: _containers.RepeatedScalarFieldContainer[str]
    note: str
    def __init__(self, request_id: _Optional[str] = ..., selection: _Optional[_Union[Selection, _Mapping]] = ..., add_tags: _Optional[_Iterable[str]] = ..., remove_tags: _Optional[_Iterable[str]] = ..., note: _Optional[str] = ...) -> None: ...

class MarkTrialsResponse(_message.Message):
    __slots__ = ("trials",)
    TRIALS_FIELD_NUMBER: _ClassVar[int]
    trials: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, trials: _Optional[_Iterable[str]] = ...) -> None: ...

class AddTrialsRequest(_message.Message):
    __slots__ = ("request_id", "study", "parameters", "new_parameters", "count")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STUDY_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    NEW_PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    study: str
    parameters: _containers.RepeatedCompositeFieldContainer[_types_pb2.Parameter]
    new_parameters: _containers.RepeatedCompositeFieldContainer[_types_pb2.Parameter]
    count: int
    def __init__(self, request_id: _Optional[str] = ..., study: _Optional[str] = ..., parameters: _Optional[_Iterable[_Union[_types_pb2.Parameter, _Mapping]]] = ..., new_parameters: _Optional[_Iterable[_Union[_types_pb2.Parameter, _Mapping]]] = ..., count: _Optional[int] = ...) -> None: ...

class AddTrialsResponse(_message.Message):
    __slots__ = ("study", "trials", "notes")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    TRIALS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    study: str
    trials: _containers.RepeatedCompositeFieldContainer[Trial]
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, study: _Optional[str] = ..., trials: _Optional[_Iterable[_Union[Trial, _Mapping]]] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class AskTrialRequest(_message.Message):
    __slots__ = ("request_id", "study")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STUDY_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    study: str
    def __init__(self, request_id: _Optional[str] = ..., study: _Optional[str] = ...) -> None: ...

class AskTrialResponse(_message.Message):
    __slots__ = ("trial",)
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    trial: Trial
    def __init__(self, trial: _Optional[_Union[Trial, _Mapping]] = ...) -> None: ...

class TellTrialRequest(_message.Message):
    __slots__ = ("request_id", "trial", "metrics", "failure")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    trial: str
    metrics: _containers.RepeatedCompositeFieldContainer[NamedNumber]
    failure: str
    def __init__(self, request_id: _Optional[str] = ..., trial: _Optional[str] = ..., metrics: _Optional[_Iterable[_Union[NamedNumber, _Mapping]]] = ..., failure: _Optional[str] = ...) -> None: ...

class NamedNumber(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: float
    def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class TellTrialResponse(_message.Message):
    __slots__ = ("trial",)
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    trial: Trial
    def __init__(self, trial: _Optional[_Union[Trial, _Mapping]] = ...) -> None: ...

class ForkTrialRequest(_message.Message):
    __slots__ = ("request_id", "trial", "parameters", "new_parameters", "step")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    NEW_PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    trial: str
    parameters: _containers.RepeatedCompositeFieldContainer[_types_pb2.NamedValue]
    new_parameters: _containers.RepeatedCompositeFieldContainer[_types_pb2.NamedValue]
    step: int
    def __init__(self, request_id: _Optional[str] = ..., trial: _Optional[str] = ..., parameters: _Optional[_Iterable[_Union[_types_pb2.NamedValue, _Mapping]]] = ..., new_parameters: _Optional[_Iterable[_Union[_types_pb2.NamedValue, _Mapping]]] = ..., step: _Optional[int] = ...) -> None: ...

class ForkTrialResponse(_message.Message):
    __slots__ = ("trial", "notes")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    trial: Trial
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, trial: _Optional[_Union[Trial, _Mapping]] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class SetMetricRequest(_message.Message):
    __slots__ = ("request_id", "study", "metric")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STUDY_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    study: str
    metric: _types_pb2.Metric
    def __init__(self, request_id: _Optional[str] = ..., study: _Optional[str] = ..., metric: _Optional[_Union[_types_pb2.Metric, _Mapping]] = ...) -> None: ...

class SetMetricResponse(_message.Message):
    __slots__ = ("ranking", "notes")
    RANKING_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    ranking: Ranking
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ranking: _Optional[_Union[Ranking, _Mapping]] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class SetSignalRequest(_message.Message):
    __slots__ = ("request_id", "study", "signal")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STUDY_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    study: str
    signal: _types_pb2.Signal
    def __init__(self, request_id: _Optional[str] = ..., study: _Optional[str] = ..., signal: _Optional[_Union[_types_pb2.Signal, _Mapping]] = ...) -> None: ...

class SetSignalResponse(_message.Message):
    __slots__ = ("signal",)
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    signal: _types_pb2.Signal
    def __init__(self, signal: _Optional[_Union[_types_pb2.Signal, _Mapping]] = ...) -> None: ...

class RemoveStudyRequest(_message.Message):
    __slots__ = ("request_id", "study")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STUDY_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    study: str
    def __init__(self, request_id: _Optional[str] = ..., study: _Optional[str] = ...) -> None: ...

class RemoveStudyResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchJournalRequest(_message.Message):
    __slots__ = ("after_sequence", "study", "reports", "once")
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STUDY_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    ONCE_FIELD_NUMBER: _ClassVar[int]
    after_sequence: int
    study: str
    reports: bool
    once: bool
    def __init__(self, after_sequence: _Optional[int] = ..., study: _Optional[str] = ..., reports: bool = ..., once: bool = ...) -> None: ...

class WatchJournalResponse(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[PublicEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[PublicEvent, _Mapping]]] = ...) -> None: ...

class PublicEvent(_message.Message):
    __slots__ = ("sequence", "at_unix_seconds", "study", "trial", "attempt", "device", "kind", "step", "loss", "quantum", "tier", "reason", "seconds", "successor", "percent", "metrics")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    AT_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STUDY_FIELD_NUMBER: _ClassVar[int]
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    QUANTUM_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    SUCCESSOR_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    at_unix_seconds: float
    study: str
    trial: str
    attempt: int
    device: str
    kind: PublicEventKind
    step: int
    loss: float
    quantum: _types_pb2.Quantum
    tier: _types_pb2.Tier
    reason: str
    seconds: float
    successor: str
    percent: float
    metrics: _containers.RepeatedCompositeFieldContainer[MetricValue]
    def __init__(self, sequence: _Optional[int] = ..., at_unix_seconds: _Optional[float] = ..., study: _Optional[str] = ..., trial: _Optional[str] = ..., attempt: _Optional[int] = ..., device: _Optional[str] = ..., kind: _Optional[_Union[PublicEventKind, str]] = ..., step: _Optional[int] = ..., loss: _Optional[float] = ..., quantum: _Optional[_Union[_types_pb2.Quantum, _Mapping]] = ..., tier: _Optional[_Union[_types_pb2.Tier, str]] = ..., reason: _Optional[str] = ..., seconds: _Optional[float] = ..., successor: _Optional[str] = ..., percent: _Optional[float] = ..., metrics: _Optional[_Iterable[_Union[MetricValue, _Mapping]]] = ...) -> None: ...

class TailLogsRequest(_message.Message):
    __slots__ = ("trial", "offset", "follow", "rank")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    trial: str
    offset: int
    follow: bool
    rank: int
    def __init__(self, trial: _Optional[str] = ..., offset: _Optional[int] = ..., follow: bool = ..., rank: _Optional[int] = ...) -> None: ...

class TailLogsResponse(_message.Message):
    __slots__ = ("data", "offset")
    DATA_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    offset: int
    def __init__(self, data: _Optional[bytes] = ..., offset: _Optional[int] = ...) -> None: ...

class ExportStudyRequest(_message.Message):
    __slots__ = ("study",)
    STUDY_FIELD_NUMBER: _ClassVar[int]
    study: str
    def __init__(self, study: _Optional[str] = ...) -> None: ...

class ExportStudyResponse(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class DownloadCheckpointRequest(_message.Message):
    __slots__ = ("trial", "checkpoint")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    trial: str
    checkpoint: str
    def __init__(self, trial: _Optional[str] = ..., checkpoint: _Optional[str] = ...) -> None: ...

class DownloadCheckpointResponse(_message.Message):
    __slots__ = ("name", "offset", "data")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    name: str
    offset: int
    data: bytes
    def __init__(self, name: _Optional[str] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class GetFilesRequest(_message.Message):
    __slots__ = ("trial", "patterns", "names_only", "written_only")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    PATTERNS_FIELD_NUMBER: _ClassVar[int]
    NAMES_ONLY_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_ONLY_FIELD_NUMBER: _ClassVar[int]
    trial: str
    patterns: _containers.RepeatedScalarFieldContainer[str]
    names_only: bool
    written_only: bool
    def __init__(self, trial: _Optional[str] = ..., patterns: _Optional[_Iterable[str]] = ..., names_only: bool = ..., written_only: bool = ...) -> None: ...

class GetFilesResponse(_message.Message):
    __slots__ = ("name", "offset", "data", "size_bytes", "modified_unix_seconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    offset: int
    data: bytes
    size_bytes: int
    modified_unix_seconds: float
    def __init__(self, name: _Optional[str] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., size_bytes: _Optional[int] = ..., modified_unix_seconds: _Optional[float] = ...) -> None: ...

class ListUsersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListUsersResponse(_message.Message):
    __slots__ = ("users",)
    USERS_FIELD_NUMBER: _ClassVar[int]
    users: _containers.RepeatedCompositeFieldContainer[User]
    def __init__(self, users: _Optional[_Iterable[_Union[User, _Mapping]]] = ...) -> None: ...

class User(_message.Message):
    __slots__ = ("name", "weight", "max_devices", "max_unfinished_trials", "devices", "unfinished_trials", "studies", "decayed_device_seconds", "share", "fair_share", "half_life_seconds", "max_studies")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    MAX_DEVICES_FIELD_NUMBER: _ClassVar[int]
    MAX_UNFINISHED_TRIALS_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    UNFINISHED_TRIALS_FIELD_NUMBER: _ClassVar[int]
    STUDIES_FIELD_NUMBER: _ClassVar[int]
    DECAYED_DEVICE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    FAIR_SHARE_FIELD_NUMBER: _ClassVar[int]
    HALF_LIFE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MAX_STUDIES_FIELD_NUMBER: _ClassVar[int]
    name: str
    weight: float
    max_devices: int
    max_unfinished_trials: int
    devices: int
    unfinished_trials: int
    studies: int
    decayed_device_seconds: float
    share: float
    fair_share: float
    half_life_seconds: float
    max_studies: int
    def __init__(self, name: _Optional[str] = ..., weight: _Optional[float] = ..., max_devices: _Optional[int] = ..., max_unfinished_trials: _Optional[int] = ..., devices: _Optional[int] = ..., unfinished_trials: _Optional[int] = ..., studies: _Optional[int] = ..., decayed_device_seconds: _Optional[float] = ..., share: _Optional[float] = ..., fair_share: _Optional[float] = ..., half_life_seconds: _Optional[float] = ..., max_studies: _Optional[int] = ...) -> None: ...

class ListAuditRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "within_seconds", "name", "refusals_only")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    WITHIN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_ONLY_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    within_seconds: float
    name: str
    refusals_only: bool
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., within_seconds: _Optional[float] = ..., name: _Optional[str] = ..., refusals_only: bool = ...) -> None: ...

class ListAuditResponse(_message.Message):
    __slots__ = ("entries", "next_page_token")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[AuditEntry]
    next_page_token: str
    def __init__(self, entries: _Optional[_Iterable[_Union[AuditEntry, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class AuditEntry(_message.Message):
    __slots__ = ("number", "at_unix_seconds", "role", "name", "shown", "peer", "method", "subject", "result", "reason", "times")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    AT_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHOWN_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    number: int
    at_unix_seconds: float
    role: str
    name: str
    shown: str
    peer: str
    method: str
    subject: str
    result: str
    reason: str
    times: int
    def __init__(self, number: _Optional[int] = ..., at_unix_seconds: _Optional[float] = ..., role: _Optional[str] = ..., name: _Optional[str] = ..., shown: _Optional[str] = ..., peer: _Optional[str] = ..., method: _Optional[str] = ..., subject: _Optional[str] = ..., result: _Optional[str] = ..., reason: _Optional[str] = ..., times: _Optional[int] = ...) -> None: ...

class ServerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ServerInfoResponse(_message.Message):
    __slots__ = ("version", "cluster_id", "started_unix_seconds", "policies", "placements", "read_only", "read_only_reason", "journal_sequence")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    STARTED_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    PLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_REASON_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    version: str
    cluster_id: str
    started_unix_seconds: float
    policies: _containers.RepeatedScalarFieldContainer[str]
    placements: _containers.RepeatedScalarFieldContainer[str]
    read_only: bool
    read_only_reason: str
    journal_sequence: int
    def __init__(self, version: _Optional[str] = ..., cluster_id: _Optional[str] = ..., started_unix_seconds: _Optional[float] = ..., policies: _Optional[_Iterable[str]] = ..., placements: _Optional[_Iterable[str]] = ..., read_only: bool = ..., read_only_reason: _Optional[str] = ..., journal_sequence: _Optional[int] = ...) -> None: ...
