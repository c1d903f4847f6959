from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SearchMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEARCH_METHOD_UNSPECIFIED: _ClassVar[SearchMethod]
    SEARCH_METHOD_GRID: _ClassVar[SearchMethod]
    SEARCH_METHOD_RANDOM: _ClassVar[SearchMethod]
    SEARCH_METHOD_TPE: _ClassVar[SearchMethod]
    SEARCH_METHOD_GP: _ClassVar[SearchMethod]
    SEARCH_METHOD_CMAES: _ClassVar[SearchMethod]
    SEARCH_METHOD_NSGAII: _ClassVar[SearchMethod]
    SEARCH_METHOD_QMC: _ClassVar[SearchMethod]
    SEARCH_METHOD_GENETIC: _ClassVar[SearchMethod]
    SEARCH_METHOD_RANDOM_WALK: _ClassVar[SearchMethod]

class Goal(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GOAL_UNSPECIFIED: _ClassVar[Goal]
    GOAL_MINIMIZE: _ClassVar[Goal]
    GOAL_MAXIMIZE: _ClassVar[Goal]

class MetricMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    METRIC_MODE_UNSPECIFIED: _ClassVar[MetricMode]
    METRIC_MODE_LAST: _ClassVar[MetricMode]
    METRIC_MODE_BEST: _ClassVar[MetricMode]
    METRIC_MODE_SMOOTHED: _ClassVar[MetricMode]

class Distribution(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DISTRIBUTION_UNSPECIFIED: _ClassVar[Distribution]
    DISTRIBUTION_CONSTANT: _ClassVar[Distribution]
    DISTRIBUTION_CATEGORICAL: _ClassVar[Distribution]
    DISTRIBUTION_INT_UNIFORM: _ClassVar[Distribution]
    DISTRIBUTION_UNIFORM: _ClassVar[Distribution]
    DISTRIBUTION_Q_UNIFORM: _ClassVar[Distribution]
    DISTRIBUTION_LOG_UNIFORM: _ClassVar[Distribution]
    DISTRIBUTION_LOG_UNIFORM_VALUES: _ClassVar[Distribution]
    DISTRIBUTION_Q_LOG_UNIFORM_VALUES: _ClassVar[Distribution]
    DISTRIBUTION_NORMAL: _ClassVar[Distribution]
    DISTRIBUTION_Q_NORMAL: _ClassVar[Distribution]
    DISTRIBUTION_LOG_NORMAL: _ClassVar[Distribution]
    DISTRIBUTION_Q_LOG_UNIFORM: _ClassVar[Distribution]
    DISTRIBUTION_INV_LOG_UNIFORM: _ClassVar[Distribution]
    DISTRIBUTION_INV_LOG_UNIFORM_VALUES: _ClassVar[Distribution]
    DISTRIBUTION_Q_LOG_NORMAL: _ClassVar[Distribution]

class Tier(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TIER_UNSPECIFIED: _ClassVar[Tier]
    TIER_PARK: _ClassVar[Tier]
    TIER_CHECKPOINT: _ClassVar[Tier]
    TIER_KILL: _ClassVar[Tier]

class Fidelity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FIDELITY_UNSPECIFIED: _ClassVar[Fidelity]
    FIDELITY_EXACT: _ClassVar[Fidelity]
    FIDELITY_EXACT_IF_DETERMINISTIC: _ClassVar[Fidelity]
    FIDELITY_PARAMETERS_EXACT: _ClassVar[Fidelity]
    FIDELITY_PARK_ONLY: _ClassVar[Fidelity]
    FIDELITY_AUTHOR: _ClassVar[Fidelity]

class TrialState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRIAL_STATE_UNSPECIFIED: _ClassVar[TrialState]
    TRIAL_STATE_WAITING: _ClassVar[TrialState]
    TRIAL_STATE_STARTING: _ClassVar[TrialState]
    TRIAL_STATE_RUNNING: _ClassVar[TrialState]
    TRIAL_STATE_SUSPENDING: _ClassVar[TrialState]
    TRIAL_STATE_COMPLETED: _ClassVar[TrialState]
    TRIAL_STATE_FAILED: _ClassVar[TrialState]
    TRIAL_STATE_STOPPED: _ClassVar[TrialState]
    TRIAL_STATE_CANCELLED: _ClassVar[TrialState]

class SequenceShape(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEQUENCE_SHAPE_UNSPECIFIED: _ClassVar[SequenceShape]
    SEQUENCE_SHAPE_LINEAR: _ClassVar[SequenceShape]
    SEQUENCE_SHAPE_COSINE: _ClassVar[SequenceShape]

class Processes(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROCESSES_UNSPECIFIED: _ClassVar[Processes]
    PROCESSES_RANKS: _ClassVar[Processes]
    PROCESSES_WORKERS: _ClassVar[Processes]
    PROCESSES_ONE: _ClassVar[Processes]

class OnStall(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_STALL_UNSPECIFIED: _ClassVar[OnStall]
    ON_STALL_TELL: _ClassVar[OnStall]
    ON_STALL_RETRY: _ClassVar[OnStall]
    ON_STALL_FAIL: _ClassVar[OnStall]

class OnThirdFailure(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_THIRD_FAILURE_UNSPECIFIED: _ClassVar[OnThirdFailure]
    ON_THIRD_FAILURE_TRIAL: _ClassVar[OnThirdFailure]
    ON_THIRD_FAILURE_STUDY: _ClassVar[OnThirdFailure]

class OnSameFailure(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_SAME_FAILURE_UNSPECIFIED: _ClassVar[OnSameFailure]
    ON_SAME_FAILURE_STUDY: _ClassVar[OnSameFailure]
    ON_SAME_FAILURE_GO_ON: _ClassVar[OnSameFailure]

class RetryAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RETRY_ACTION_UNSPECIFIED: _ClassVar[RetryAction]
    RETRY_ACTION_NOT_HERE: _ClassVar[RetryAction]
    RETRY_ACTION_NO_RETRY: _ClassVar[RetryAction]
    RETRY_ACTION_EXCLUDE_NODE: _ClassVar[RetryAction]
    RETRY_ACTION_MORE_MEMORY: _ClassVar[RetryAction]

class FailureRule(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAILURE_RULE_UNSPECIFIED: _ClassVar[FailureRule]
    FAILURE_RULE_EVIDENCE: _ClassVar[FailureRule]
    FAILURE_RULE_HOPS: _ClassVar[FailureRule]

class Share(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SHARE_UNSPECIFIED: _ClassVar[Share]
    SHARE_NO: _ClassVar[Share]
    SHARE_TREE: _ClassVar[Share]
SEARCH_METHOD_UNSPECIFIED: SearchMethod
SEARCH_METHOD_GRID: SearchMethod
SEARCH_METHOD_RANDOM: SearchMethod
SEARCH_METHOD_TPE: SearchMethod
SEARCH_METHOD_GP: SearchMethod
SEARCH_METHOD_CMAES: SearchMethod
SEARCH_METHOD_NSGAII: SearchMethod
SEARCH_METHOD_QMC: SearchMethod
SEARCH_METHOD_GENETIC: SearchMethod
SEARCH_METHOD_RANDOM_WALK: SearchMethod
GOAL_UNSPECIFIED: Goal
GOAL_MINIMIZE: Goal
GOAL_MAXIMIZE: Goal
METRIC_MODE_UNSPECIFIED: MetricMode
METRIC_MODE_LAST: MetricMode
METRIC_MODE_BEST: MetricMode
METRIC_MODE_SMOOTHED: MetricMode
DISTRIBUTION_UNSPECIFIED: Distribution
DISTRIBUTION_CONSTANT: Distribution
DISTRIBUTION_CATEGORICAL: Distribution
DISTRIBUTION_INT_UNIFORM: Distribution
DISTRIBUTION_UNIFORM: Distribution
DISTRIBUTION_Q_UNIFORM: Distribution
DISTRIBUTION_LOG_UNIFORM: Distribution
DISTRIBUTION_LOG_UNIFORM_VALUES: Distribution
DISTRIBUTION_Q_LOG_UNIFORM_VALUES: Distribution
DISTRIBUTION_NORMAL: Distribution
DISTRIBUTION_Q_NORMAL: Distribution
DISTRIBUTION_LOG_NORMAL: Distribution
DISTRIBUTION_Q_LOG_UNIFORM: Distribution
DISTRIBUTION_INV_LOG_UNIFORM: Distribution
DISTRIBUTION_INV_LOG_UNIFORM_VALUES: Distribution
DISTRIBUTION_Q_LOG_NORMAL: Distribution
TIER_UNSPECIFIED: Tier
TIER_PARK: Tier
TIER_CHECKPOINT: Tier
TIER_KILL: Tier
FIDELITY_UNSPECIFIED: Fidelity
FIDELITY_EXACT: Fidelity
FIDELITY_EXACT_IF_DETERMINISTIC: Fidelity
FIDELITY_PARAMETERS_EXACT: Fidelity
FIDELITY_PARK_ONLY: Fidelity
FIDELITY_AUTHOR: Fidelity
TRIAL_STATE_UNSPECIFIED: TrialState
TRIAL_STATE_WAITING: TrialState
TRIAL_STATE_STARTING: TrialState
TRIAL_STATE_RUNNING: TrialState
TRIAL_STATE_SUSPENDING: TrialState
TRIAL_STATE_COMPLETED: TrialState
TRIAL_STATE_FAILED: TrialState
TRIAL_STATE_STOPPED: TrialState
TRIAL_STATE_CANCELLED: TrialState
SEQUENCE_SHAPE_UNSPECIFIED: SequenceShape
SEQUENCE_SHAPE_LINEAR: SequenceShape
SEQUENCE_SHAPE_COSINE: SequenceShape
PROCESSES_UNSPECIFIED: Processes
PROCESSES_RANKS: Processes
PROCESSES_WORKERS: Processes
PROCESSES_ONE: Processes
ON_STALL_UNSPECIFIED: OnStall
ON_STALL_TELL: OnStall
ON_STALL_RETRY: OnStall
ON_STALL_FAIL: OnStall
ON_THIRD_FAILURE_UNSPECIFIED: OnThirdFailure
ON_THIRD_FAILURE_TRIAL: OnThirdFailure
ON_THIRD_FAILURE_STUDY: OnThirdFailure
ON_SAME_FAILURE_UNSPECIFIED: OnSameFailure
ON_SAME_FAILURE_STUDY: OnSameFailure
ON_SAME_FAILURE_GO_ON: OnSameFailure
RETRY_ACTION_UNSPECIFIED: RetryAction
RETRY_ACTION_NOT_HERE: RetryAction
RETRY_ACTION_NO_RETRY: RetryAction
RETRY_ACTION_EXCLUDE_NODE: RetryAction
RETRY_ACTION_MORE_MEMORY: RetryAction
FAILURE_RULE_UNSPECIFIED: FailureRule
FAILURE_RULE_EVIDENCE: FailureRule
FAILURE_RULE_HOPS: FailureRule
SHARE_UNSPECIFIED: Share
SHARE_NO: Share
SHARE_TREE: Share

class Value(_message.Message):
    __slots__ = ("string_value", "int_value", "double_value", "bool_value", "list_value")
    STRING_VALUE_FIELD_NUMBER: _ClassVar[int]
    INT_VALUE_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_VALUE_FIELD_NUMBER: _ClassVar[int]
    BOOL_VALUE_FIELD_NUMBER: _ClassVar[int]
    LIST_VALUE_FIELD_NUMBER: _ClassVar[int]
    string_value: str
    int_value: int
    double_value: float
    bool_value: bool
    list_value: ValueList
    def __init__(self, string_value: _Optional[str] = ..., int_value: _Optional[int] = ..., double_value: _Optional[float] = ..., bool_value: bool = ..., list_value: _Optional[_Union[ValueList, _Mapping]] = ...) -> None: ...

class ValueList(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[Value]
    def __init__(self, values: _Optional[_Iterable[_Union[Value, _Mapping]]] = ...) -> None: ...

class NamedValue(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: Value
    def __init__(self, name: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...

class Metric(_message.Message):
    __slots__ = ("name", "goal", "mode")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GOAL_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    name: str
    goal: Goal
    mode: MetricMode
    def __init__(self, name: _Optional[str] = ..., goal: _Optional[_Union[Goal, str]] = ..., mode: _Optional[_Union[MetricMode, str]] = ...) -> None: ...

class Signal(_message.Message):
    __slots__ = ("name", "goal")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GOAL_FIELD_NUMBER: _ClassVar[int]
    name: str
    goal: Goal
    def __init__(self, name: _Optional[str] = ..., goal: _Optional[_Union[Goal, str]] = ...) -> None: ...

class Parameter(_message.Message):
    __slots__ = ("name", "value", "values", "probabilities", "min", "max", "distribution", "mu", "sigma", "q", "parameters", "sequence", "when")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    DISTRIBUTION_FIELD_NUMBER: _ClassVar[int]
    MU_FIELD_NUMBER: _ClassVar[int]
    SIGMA_FIELD_NUMBER: _ClassVar[int]
    Q_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    WHEN_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: Value
    values: _containers.RepeatedCompositeFieldContainer[Value]
    probabilities: _containers.RepeatedScalarFieldContainer[float]
    min: Value
    max: Value
    distribution: Distribution
    mu: float
    sigma: float
    q: float
    parameters: _containers.RepeatedCompositeFieldContainer[Parameter]
    sequence: Sequence
    when: _containers.RepeatedCompositeFieldContainer[Condition]
    def __init__(self, name: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ..., values: _Optional[_Iterable[_Union[Value, _Mapping]]] = ..., probabilities: _Optional[_Iterable[float]] = ..., min: _Optional[_Union[Value, _Mapping]] = ..., max: _Optional[_Union[Value, _Mapping]] = ..., distribution: _Optional[_Union[Distribution, str]] = ..., mu: _Optional[float] = ..., sigma: _Optional[float] = ..., q: _Optional[float] = ..., parameters: _Optional[_Iterable[_Union[Parameter, _Mapping]]] = ..., sequence: _Optional[_Union[Sequence, _Mapping]] = ..., when: _Optional[_Iterable[_Union[Condition, _Mapping]]] = ...) -> None: ...

class Condition(_message.Message):
    __slots__ = ("name", "values")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    name: str
    values: _containers.RepeatedCompositeFieldContainer[Value]
    def __init__(self, name: _Optional[str] = ..., values: _Optional[_Iterable[_Union[Value, _Mapping]]] = ...) -> None: ...

class Sequence(_message.Message):
    __slots__ = ("values", "start", "times", "after", "at", "to", "over", "every", "shape", "period", "warmup", "steps_per_epoch")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    EVERY_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    WARMUP_FIELD_NUMBER: _ClassVar[int]
    STEPS_PER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[Value]
    start: Value
    times: Value
    after: _containers.RepeatedCompositeFieldContainer[Value]
    at: _containers.RepeatedCompositeFieldContainer[Value]
    to: Value
    over: Value
    every: Value
    shape: SequenceShape
    period: Value
    warmup: Value
    steps_per_epoch: int
    def __init__(self, values: _Optional[_Iterable[_Union[Value, _Mapping]]] = ..., start: _Optional[_Union[Value, _Mapping]] = ..., times: _Optional[_Union[Value, _Mapping]] = ..., after: _Optional[_Iterable[_Union[Value, _Mapping]]] = ..., at: _Optional[_Iterable[_Union[Value, _Mapping]]] = ..., to: _Optional[_Union[Value, _Mapping]] = ..., over: _Optional[_Union[Value, _Mapping]] = ..., every: _Optional[_Union[Value, _Mapping]] = ..., shape: _Optional[_Union[SequenceShape, str]] = ..., period: _Optional[_Union[Value, _Mapping]] = ..., warmup: _Optional[_Union[Value, _Mapping]] = ..., steps_per_epoch: _Optional[int] = ...) -> None: ...

class Plugin(_message.Message):
    __slots__ = ("name", "settings")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: _containers.RepeatedCompositeFieldContainer[NamedValue]
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Iterable[_Union[NamedValue, _Mapping]]] = ...) -> None: ...

class Schedule(_message.Message):
    __slots__ = ("policy", "placement")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    policy: Plugin
    placement: Plugin
    def __init__(self, policy: _Optional[_Union[Plugin, _Mapping]] = ..., placement: _Optional[_Union[Plugin, _Mapping]] = ...) -> None: ...

class Resources(_message.Message):
    __slots__ = ("device_kind", "memory_bytes", "devices", "processes", "max_devices")
    DEVICE_KIND_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    MAX_DEVICES_FIELD_NUMBER: _ClassVar[int]
    device_kind: str
    memory_bytes: int
    devices: int
    processes: Processes
    max_devices: int
    def __init__(self, device_kind: _Optional[str] = ..., memory_bytes: _Optional[int] = ..., devices: _Optional[int] = ..., processes: _Optional[_Union[Processes, str]] = ..., max_devices: _Optional[int] = ...) -> None: ...

class Requires(_message.Message):
    __slots__ = ("paths",)
    PATHS_FIELD_NUMBER: _ClassVar[int]
    paths: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, paths: _Optional[_Iterable[str]] = ...) -> None: ...

class Suspend(_message.Message):
    __slots__ = ("tier", "durability_seconds", "deadline_seconds", "replicas")
    TIER_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    tier: Tier
    durability_seconds: float
    deadline_seconds: float
    replicas: int
    def __init__(self, tier: _Optional[_Union[Tier, str]] = ..., durability_seconds: _Optional[float] = ..., deadline_seconds: _Optional[float] = ..., replicas: _Optional[int] = ...) -> None: ...

class RetryRule(_message.Message):
    __slots__ = ("match", "do")
    MATCH_FIELD_NUMBER: _ClassVar[int]
    DO_FIELD_NUMBER: _ClassVar[int]
    match: str
    do: RetryAction
    def __init__(self, match: _Optional[str] = ..., do: _Optional[_Union[RetryAction, str]] = ...) -> None: ...

class Retry(_message.Message):
    __slots__ = ("max_failures", "on_third_failure", "rules", "hung_seconds", "on_same_failure", "stalled", "rule")
    MAX_FAILURES_FIELD_NUMBER: _ClassVar[int]
    ON_THIRD_FAILURE_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    HUNG_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ON_SAME_FAILURE_FIELD_NUMBER: _ClassVar[int]
    STALLED_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    max_failures: int
    on_third_failure: OnThirdFailure
    rules: _containers.RepeatedCompositeFieldContainer[RetryRule]
    hung_seconds: float
    on_same_failure: OnSameFailure
    stalled: OnStall
    rule: FailureRule
    def __init__(self, max_failures: _Optional[int] = ..., on_third_failure: _Optional[_Union[OnThirdFailure, str]] = ..., rules: _Optional[_Iterable[_Union[RetryRule, _Mapping]]] = ..., hung_seconds: _Optional[float] = ..., on_same_failure: _Optional[_Union[OnSameFailure, str]] = ..., stalled: _Optional[_Union[OnStall, str]] = ..., rule: _Optional[_Union[FailureRule, str]] = ...) -> None: ...

class Stop(_message.Message):
    __slots__ = ("max_steps", "max_seconds", "target", "on_nan")
    MAX_STEPS_FIELD_NUMBER: _ClassVar[int]
    MAX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ON_NAN_FIELD_NUMBER: _ClassVar[int]
    max_steps: int
    max_seconds: float
    target: float
    on_nan: bool
    def __init__(self, max_steps: _Optional[int] = ..., max_seconds: _Optional[float] = ..., target: _Optional[float] = ..., on_nan: bool = ...) -> None: ...

class EarlyTerminate(_message.Message):
    __slots__ = ("type", "min_iter", "max_iter", "s", "eta", "strict")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MIN_ITER_FIELD_NUMBER: _ClassVar[int]
    MAX_ITER_FIELD_NUMBER: _ClassVar[int]
    S_FIELD_NUMBER: _ClassVar[int]
    ETA_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    type: str
    min_iter: int
    max_iter: int
    s: int
    eta: float
    strict: bool
    def __init__(self, type: _Optional[str] = ..., min_iter: _Optional[int] = ..., max_iter: _Optional[int] = ..., s: _Optional[int] = ..., eta: _Optional[float] = ..., strict: bool = ...) -> None: ...

class MetricPattern(_message.Message):
    __slots__ = ("name", "pattern")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    name: str
    pattern: str
    def __init__(self, name: _Optional[str] = ..., pattern: _Optional[str] = ...) -> None: ...

class Search(_message.Message):
    __slots__ = ("ahead", "startup", "population", "asked")
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    STARTUP_FIELD_NUMBER: _ClassVar[int]
    POPULATION_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    ahead: int
    startup: int
    population: int
    asked: bool
    def __init__(self, ahead: _Optional[int] = ..., startup: _Optional[int] = ..., population: _Optional[int] = ..., asked: bool = ...) -> None: ...

class Objective(_message.Message):
    __slots__ = ("name", "goal")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GOAL_FIELD_NUMBER: _ClassVar[int]
    name: str
    goal: Goal
    def __init__(self, name: _Optional[str] = ..., goal: _Optional[_Union[Goal, str]] = ...) -> None: ...

class Constraint(_message.Message):
    __slots__ = ("name", "min", "max")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    name: str
    min: float
    max: float
    def __init__(self, name: _Optional[str] = ..., min: _Optional[float] = ..., max: _Optional[float] = ...) -> None: ...

class StudySpec(_message.Message):
    __slots__ = ("name", "description", "project", "entity", "program", "command", "method", "metric", "parameters", "run_cap", "early_terminate", "signal", "schedule", "resources", "suspend", "retry", "stop", "data", "python", "seed", "pool", "priority", "requires", "requirements", "conda", "metrics", "keep", "search", "warm_start", "objectives", "constraints", "where", "share", "share_with")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    RUN_CAP_FIELD_NUMBER: _ClassVar[int]
    EARLY_TERMINATE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    SUSPEND_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    REQUIRES_FIELD_NUMBER: _ClassVar[int]
    REQUIREMENTS_FIELD_NUMBER: _ClassVar[int]
    CONDA_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    SEARCH_FIELD_NUMBER: _ClassVar[int]
    WARM_START_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVES_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    SHARE_WITH_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    project: str
    entity: str
    program: str
    command: _containers.RepeatedScalarFieldContainer[str]
    method: SearchMethod
    metric: Metric
    parameters: _containers.RepeatedCompositeFieldContainer[Parameter]
    run_cap: int
    early_terminate: EarlyTerminate
    signal: Signal
    schedule: Schedule
    resources: Resources
    suspend: Suspend
    retry: Retry
    stop: Stop
    data: _containers.RepeatedScalarFieldContainer[str]
    python: str
    seed: int
    pool: str
    priority: int
    requires: Requires
    requirements: str
    conda: str
    metrics: _containers.RepeatedCompositeFieldContainer[MetricPattern]
    keep: _containers.RepeatedScalarFieldContainer[str]
    search: Search
    warm_start: _containers.RepeatedScalarFieldContainer[str]
    objectives: _containers.RepeatedCompositeFieldContainer[Objective]
    constraints: _containers.RepeatedCompositeFieldContainer[Constraint]
    where: _containers.RepeatedScalarFieldContainer[str]
    share: Share
    share_with: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., project: _Optional[str] = ..., entity: _Optional[str] = ..., program: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ..., method: _Optional[_Union[SearchMethod, str]] = ..., metric: _Optional[_Union[Metric, _Mapping]] = ..., parameters: _Optional[_Iterable[_Union[Parameter, _Mapping]]] = ..., run_cap: _Optional[int] = ..., early_terminate: _Optional[_Union[EarlyTerminate, _Mapping]] = ..., signal: _Optional[_Union[Signal, _Mapping]] = ..., schedule: _Optional[_Union[Schedule, _Mapping]] = ..., resources: _Optional[_Union[Resources, _Mapping]] = ..., suspend: _Optional[_Union[Suspend, _Mapping]] = ..., retry: _Optional[_Union[Retry, _Mapping]] = ..., stop: _Optional[_Union[Stop, _Mapping]] = ..., data: _Optional[_Iterable[str]] = ..., python: _Optional[str] = ..., seed: _Optional[int] = ..., pool: _Optional[str] = ..., priority: _Optional[int] = ..., requires: _Optional[_Union[Requires, _Mapping]] = ..., requirements: _Optional[str] = ..., conda: _Optional[str] = ..., metrics: _Optional[_Iterable[_Union[MetricPattern, _Mapping]]] = ..., keep: _Optional[_Iterable[str]] = ..., search: _Optional[_Union[Search, _Mapping]] = ..., warm_start: _Optional[_Iterable[str]] = ..., objectives: _Optional[_Iterable[_Union[Objective, _Mapping]]] = ..., constraints: _Optional[_Iterable[_Union[Constraint, _Mapping]]] = ..., where: _Optional[_Iterable[str]] = ..., share: _Optional[_Union[Share, str]] = ..., share_with: _Optional[_Iterable[str]] = ...) -> None: ...

class Quantum(_message.Message):
    __slots__ = ("seconds", "until_step", "loss", "exact", "milestones")
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_STEP_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    EXACT_FIELD_NUMBER: _ClassVar[int]
    MILESTONES_FIELD_NUMBER: _ClassVar[int]
    seconds: float
    until_step: int
    loss: float
    exact: bool
    milestones: _containers.RepeatedCompositeFieldContainer[Milestone]
    def __init__(self, seconds: _Optional[float] = ..., until_step: _Optional[int] = ..., loss: _Optional[float] = ..., exact: bool = ..., milestones: _Optional[_Iterable[_Union[Milestone, _Mapping]]] = ...) -> None: ...

class Milestone(_message.Message):
    __slots__ = ("percent", "loss")
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    percent: float
    loss: float
    def __init__(self, percent: _Optional[float] = ..., loss: _Optional[float] = ...) -> None: ...

class Checkpoint(_message.Message):
    __slots__ = ("id", "trial", "attempt", "step", "sha256", "size_bytes", "nodes", "image_of", "why", "image_device", "is_fork", "devices")
    ID_FIELD_NUMBER: _ClassVar[int]
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    IMAGE_OF_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    IMAGE_DEVICE_FIELD_NUMBER: _ClassVar[int]
    IS_FORK_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    id: str
    trial: str
    attempt: int
    step: int
    sha256: str
    size_bytes: int
    nodes: _containers.RepeatedScalarFieldContainer[str]
    image_of: str
    why: str
    image_device: str
    is_fork: bool
    devices: int
    def __init__(self, id: _Optional[str] = ..., trial: _Optional[str] = ..., attempt: _Optional[int] = ..., step: _Optional[int] = ..., sha256: _Optional[str] = ..., size_bytes: _Optional[int] = ..., nodes: _Optional[_Iterable[str]] = ..., image_of: _Optional[str] = ..., why: _Optional[str] = ..., image_device: _Optional[str] = ..., is_fork: bool = ..., devices: _Optional[int] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("id", "node", "kind", "memory_bytes", "cores", "seat")
    ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    SEAT_FIELD_NUMBER: _ClassVar[int]
    id: str
    node: str
    kind: str
    memory_bytes: int
    cores: _containers.RepeatedScalarFieldContainer[int]
    seat: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., node: _Optional[str] = ..., kind: _Optional[str] = ..., memory_bytes: _Optional[int] = ..., cores: _Optional[_Iterable[int]] = ..., seat: _Optional[_Iterable[str]] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("utilization", "memory_bytes")
    UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    utilization: float
    memory_bytes: int
    def __init__(self, utilization: _Optional[float] = ..., memory_bytes: _Optional[int] = ...) -> None: ...
