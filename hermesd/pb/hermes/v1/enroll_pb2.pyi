from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class IdentityRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    IDENTITY_ROLE_UNSPECIFIED: _ClassVar[IdentityRole]
    IDENTITY_ROLE_NODE: _ClassVar[IdentityRole]
    IDENTITY_ROLE_USER: _ClassVar[IdentityRole]
    IDENTITY_ROLE_ADMIN: _ClassVar[IdentityRole]
    IDENTITY_ROLE_OPERATOR: _ClassVar[IdentityRole]
IDENTITY_ROLE_UNSPECIFIED: IdentityRole
IDENTITY_ROLE_NODE: IdentityRole
IDENTITY_ROLE_USER: IdentityRole
IDENTITY_ROLE_ADMIN: IdentityRole
IDENTITY_ROLE_OPERATOR: IdentityRole

class InviteRequest(_message.Message):
    __slots__ = ("role", "name", "valid_seconds", "uses", "pool", "most_devices", "own")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALID_SECONDS_FIELD_NUMBER: _ClassVar[int]
    USES_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    MOST_DEVICES_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    role: IdentityRole
    name: str
    valid_seconds: float
    uses: int
    pool: str
    most_devices: int
    own: bool
    def __init__(self, role: _Optional[_Union[IdentityRole, str]] = ..., name: _Optional[str] = ..., valid_seconds: _Optional[float] = ..., uses: _Optional[int] = ..., pool: _Optional[str] = ..., most_devices: _Optional[int] = ..., own: bool = ...) -> None: ...

class InviteResponse(_message.Message):
    __slots__ = ("token", "address")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    token: str
    address: str
    def __init__(self, token: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class EnrollRequest(_message.Message):
    __slots__ = ("secret", "name", "signing_request", "machine")
    SECRET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIGNING_REQUEST_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    secret: bytes
    name: str
    signing_request: bytes
    machine: bool
    def __init__(self, secret: _Optional[bytes] = ..., name: _Optional[str] = ..., signing_request: _Optional[bytes] = ..., machine: bool = ...) -> None: ...

class EnrollResponse(_message.Message):
    __slots__ = ("certificate", "role", "name")
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    certificate: bytes
    role: IdentityRole
    name: str
    def __init__(self, certificate: _Optional[bytes] = ..., role: _Optional[_Union[IdentityRole, str]] = ..., name: _Optional[str] = ...) -> None: ...

class RenewRequest(_message.Message):
    __slots__ = ("signing_request",)
    SIGNING_REQUEST_FIELD_NUMBER: _ClassVar[int]
    signing_request: bytes
    def __init__(self, signing_request: _Optional[bytes] = ...) -> None: ...

class RenewResponse(_message.Message):
    __slots__ = ("certificate", "authority")
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    certificate: bytes
    authority: bytes
    def __init__(self, certificate: _Optional[bytes] = ..., authority: _Optional[bytes] = ...) -> None: ...

class RevokeRequest(_message.Message):
    __slots__ = ("role", "name", "token")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    role: IdentityRole
    name: str
    token: str
    def __init__(self, role: _Optional[_Union[IdentityRole, str]] = ..., name: _Optional[str] = ..., token: _Optional[str] = ...) -> None: ...

class RevokeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListIdentitiesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListIdentitiesResponse(_message.Message):
    __slots__ = ("identities",)
    IDENTITIES_FIELD_NUMBER: _ClassVar[int]
    identities: _containers.RepeatedCompositeFieldContainer[Identity]
    def __init__(self, identities: _Optional[_Iterable[_Union[Identity, _Mapping]]] = ...) -> None: ...

class Identity(_message.Message):
    __slots__ = ("role", "name", "expires_unix_seconds")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    role: IdentityRole
    name: str
    expires_unix_seconds: float
    def __init__(self, role: _Optional[_Union[IdentityRole, str]] = ..., name: _Optional[str] = ..., expires_unix_seconds: _Optional[float] = ...) -> None: ...

class IssueTokenRequest(_message.Message):
    __slots__ = ("name", "user", "role", "valid_seconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    VALID_SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    user: str
    role: IdentityRole
    valid_seconds: float
    def __init__(self, name: _Optional[str] = ..., user: _Optional[str] = ..., role: _Optional[_Union[IdentityRole, str]] = ..., valid_seconds: _Optional[float] = ...) -> None: ...

class IssueTokenResponse(_message.Message):
    __slots__ = ("text", "token")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    text: str
    token: IssuedToken
    def __init__(self, text: _Optional[str] = ..., token: _Optional[_Union[IssuedToken, _Mapping]] = ...) -> None: ...

class IssuedToken(_message.Message):
    __slots__ = ("name", "user", "role", "made_unix_seconds", "expires_unix_seconds", "by")
    NAME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    MADE_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    name: str
    user: str
    role: IdentityRole
    made_unix_seconds: float
    expires_unix_seconds: float
    by: str
    def __init__(self, name: _Optional[str] = ..., user: _Optional[str] = ..., role: _Optional[_Union[IdentityRole, str]] = ..., made_unix_seconds: _Optional[float] = ..., expires_unix_seconds: _Optional[float] = ..., by: _Optional[str] = ...) -> None: ...

class ListTokensRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTokensResponse(_message.Message):
    __slots__ = ("tokens",)
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[IssuedToken]
    def __init__(self, tokens: _Optional[_Iterable[_Union[IssuedToken, _Mapping]]] = ...) -> None: ...

class RevokeTokenRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class RevokeTokenResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RotateAuthorityRequest(_message.Message):
    __slots__ = ("overlap_seconds",)
    OVERLAP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    overlap_seconds: float
    def __init__(self, overlap_seconds: _Optional[float] = ...) -> None: ...

class RotateAuthorityResponse(_message.Message):
    __slots__ = ("authority",)
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    authority: AuthorityStatus
    def __init__(self, authority: _Optional[_Union[AuthorityStatus, _Mapping]] = ...) -> None: ...

class GetAuthorityRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetAuthorityResponse(_message.Message):
    __slots__ = ("authority",)
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    authority: AuthorityStatus
    def __init__(self, authority: _Optional[_Union[AuthorityStatus, _Mapping]] = ...) -> None: ...

class AuthorityStatus(_message.Message):
    __slots__ = ("roots", "signs_unix_seconds", "ends_unix_seconds", "behind")
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    SIGNS_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ENDS_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    roots: bytes
    signs_unix_seconds: float
    ends_unix_seconds: float
    behind: _containers.RepeatedCompositeFieldContainer[Identity]
    def __init__(self, roots: _Optional[bytes] = ..., signs_unix_seconds: _Optional[float] = ..., ends_unix_seconds: _Optional[float] = ..., behind: _Optional[_Iterable[_Union[Identity, _Mapping]]] = ...) -> None: ...
