from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class FetchRequest(_message.Message):
    __slots__ = ("trial", "checkpoint", "ticket", "file", "offset", "identity")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    trial: str
    checkpoint: str
    ticket: bytes
    file: str
    offset: int
    identity: str
    def __init__(self, trial: _Optional[str] = ..., checkpoint: _Optional[str] = ..., ticket: _Optional[bytes] = ..., file: _Optional[str] = ..., offset: _Optional[int] = ..., identity: _Optional[str] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class DoubtRequest(_message.Message):
    __slots__ = ("trial", "checkpoint", "ticket")
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    trial: str
    checkpoint: str
    ticket: bytes
    def __init__(self, trial: _Optional[str] = ..., checkpoint: _Optional[str] = ..., ticket: _Optional[bytes] = ...) -> None: ...

class DoubtResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
