from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class HostRequest(_message.Message):
    __slots__ = ("version", "query", "history", "instances", "spec", "environment", "modules", "port", "membership")
    class EnvironmentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ModulesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    MODULES_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    MEMBERSHIP_FIELD_NUMBER: _ClassVar[int]
    version: int
    query: str
    history: int
    instances: int
    spec: bytes
    environment: _containers.ScalarMap[str, str]
    modules: _containers.ScalarMap[str, str]
    port: int
    membership: str
    def __init__(self, version: _Optional[int] = ..., query: _Optional[str] = ..., history: _Optional[int] = ..., instances: _Optional[int] = ..., spec: _Optional[bytes] = ..., environment: _Optional[_Mapping[str, str]] = ..., modules: _Optional[_Mapping[str, str]] = ..., port: _Optional[int] = ..., membership: _Optional[str] = ...) -> None: ...

class Hosted(_message.Message):
    __slots__ = ("lease", "seconds", "port", "determinants", "answer")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    DETERMINANTS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    lease: int
    seconds: float
    port: int
    determinants: int
    answer: int
    def __init__(self, lease: _Optional[int] = ..., seconds: _Optional[float] = ..., port: _Optional[int] = ..., determinants: _Optional[int] = ..., answer: _Optional[int] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("version", "query", "lease", "heard")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    version: int
    query: str
    lease: int
    heard: int
    def __init__(self, version: _Optional[int] = ..., query: _Optional[str] = ..., lease: _Optional[int] = ..., heard: _Optional[int] = ...) -> None: ...

class Released(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StrikeRequest(_message.Message):
    __slots__ = ("version", "query", "kind", "role", "node", "instance", "seconds", "factor", "name")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    version: int
    query: str
    kind: str
    role: str
    node: int
    instance: int
    seconds: float
    factor: float
    name: str
    def __init__(self, version: _Optional[int] = ..., query: _Optional[str] = ..., kind: _Optional[str] = ..., role: _Optional[str] = ..., node: _Optional[int] = ..., instance: _Optional[int] = ..., seconds: _Optional[float] = ..., factor: _Optional[float] = ..., name: _Optional[str] = ...) -> None: ...

class Struck(_message.Message):
    __slots__ = ("said",)
    SAID_FIELD_NUMBER: _ClassVar[int]
    said: str
    def __init__(self, said: _Optional[str] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class Described(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...
