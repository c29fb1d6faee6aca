from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FetchRequest(_message.Message):
    __slots__ = ("version", "query", "node", "instance", "from_offset", "onward")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ONWARD_FIELD_NUMBER: _ClassVar[int]
    version: int
    query: str
    node: int
    instance: int
    from_offset: int
    onward: bool
    def __init__(self, version: _Optional[int] = ..., query: _Optional[str] = ..., node: _Optional[int] = ..., instance: _Optional[int] = ..., from_offset: _Optional[int] = ..., onward: _Optional[bool] = ...) -> None: ...

class FetchReply(_message.Message):
    __slots__ = ("segments", "required", "corrupt", "holder", "next_offset", "own", "damaged", "marks")
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_FIELD_NUMBER: _ClassVar[int]
    CORRUPT_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedCompositeFieldContainer[Segment]
    required: int
    corrupt: _containers.RepeatedScalarFieldContainer[str]
    holder: str
    next_offset: int
    own: _containers.RepeatedCompositeFieldContainer[OwnLog]
    damaged: _containers.RepeatedCompositeFieldContainer[Damage]
    marks: _containers.RepeatedCompositeFieldContainer[HistoryMark]
    def __init__(self, segments: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ..., required: _Optional[int] = ..., corrupt: _Optional[_Iterable[str]] = ..., holder: _Optional[str] = ..., next_offset: _Optional[int] = ..., own: _Optional[_Iterable[_Union[OwnLog, _Mapping]]] = ..., damaged: _Optional[_Iterable[_Union[Damage, _Mapping]]] = ..., marks: _Optional[_Iterable[_Union[HistoryMark, _Mapping]]] = ...) -> None: ...

class HistoryMark(_message.Message):
    __slots__ = ("begins", "ends", "digest")
    BEGINS_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    begins: int
    ends: int
    digest: int
    def __init__(self, begins: _Optional[int] = ..., ends: _Optional[int] = ..., digest: _Optional[int] = ...) -> None: ...

class Damage(_message.Message):
    __slots__ = ("what", "node", "instance", "acts")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    ACTS_FIELD_NUMBER: _ClassVar[int]
    what: str
    node: int
    instance: int
    acts: bool
    def __init__(self, what: _Optional[str] = ..., node: _Optional[int] = ..., instance: _Optional[int] = ..., acts: _Optional[bool] = ...) -> None: ...

class OwnLog(_message.Message):
    __slots__ = ("segments", "incarnations", "received", "damaged")
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    INCARNATIONS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedCompositeFieldContainer[Segment]
    incarnations: _containers.RepeatedCompositeFieldContainer[Incarnation]
    received: _containers.RepeatedScalarFieldContainer[bytes]
    damaged: bool
    def __init__(self, segments: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ..., incarnations: _Optional[_Iterable[_Union[Incarnation, _Mapping]]] = ..., received: _Optional[_Iterable[bytes]] = ..., damaged: _Optional[bool] = ...) -> None: ...

class Incarnation(_message.Message):
    __slots__ = ("fence", "since", "wide", "copy")
    FENCE_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    WIDE_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    fence: int
    since: int
    wide: bytes
    copy: bool
    def __init__(self, fence: _Optional[int] = ..., since: _Optional[int] = ..., wide: _Optional[bytes] = ..., copy: _Optional[bool] = ...) -> None: ...

class Segment(_message.Message):
    __slots__ = ("start", "data")
    START_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    start: int
    data: bytes
    def __init__(self, start: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...
