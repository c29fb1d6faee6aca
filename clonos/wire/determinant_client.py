"""The recovering side: asks all possible holders at once.

Which holder has what is not known beforehand, and a holder may be gone for the same reason for which the instance
recovers. So all are asked in parallel, under one deadline, and the answer is what each holder said, and which ones
could not be asked or broke off, and why. Whether that suffices is not decided here
(`clonos.protocol.recovery.causal.asking`, `clonos.protocol.recovery.causal.longest_prefix`). Only a refusal for good is
an error at once: a wrong token or version does not get better by asking others.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc

from clonos.errors import ProtocolError, Unauthenticated
from clonos.protocol.fence import Fence
from clonos.protocol.ids import LOG_BEGIN, InstanceId, LogOffset, NodeId, Origin
from clonos.protocol.recovery.causal.causal_log import Segment
from clonos.protocol.recovery.causal.history_mark import HistoryMark
from clonos.protocol.recovery.causal.holding import Damage, HolderReply
from clonos.protocol.recovery.causal.own_log import OwnLog, Writer
from clonos.wire._gen import determinants_pb2, determinants_pb2_grpc
from clonos.wire.boundary import bearer
from clonos.wire.determinant_service import VERSION
from clonos.wire.tls import Tls, channel

MAX_REPLY: Final = 256 * 1024 * 1024
_MAX_PAGES: Final = 100_000
_REFUSALS = {
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.INVALID_ARGUMENT: ProtocolError,
    grpc.StatusCode.UNIMPLEMENTED: ProtocolError,
}


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A holder that did not answer."""

    address: str
    reason: str

    def __str__(self) -> str:
        return f"{self.address} ({self.reason})"


@dataclass(slots=True)
class Fetched:
    """What came back, in the order of the addresses. A reply is whole, or it is none."""

    replies: dict[str, HolderReply] = field(default_factory=dict)
    unreachable: list[Unreachable] = field(default_factory=list)


@dataclass(slots=True)
class _Holder:
    address: str
    channel: grpc.Channel
    future: Any = None
    segments: list[Segment] = field(default_factory=list)
    required: LogOffset = LOG_BEGIN
    damaged: dict[Damage, None] = field(default_factory=dict)
    own: dict[int, OwnLog] = field(default_factory=dict)
    marks: dict[HistoryMark, None] = field(default_factory=dict)
    name: str = ""
    failure: str | None = None


def fetch(
    addresses: Sequence[str],
    token: str,
    node: NodeId,
    instance: InstanceId,
    from_offset: LogOffset = LOG_BEGIN,
    *,
    timeout: float = 10.0,
    query: str = "",
    tls: Tls | None = None,
    wait_for_ready: bool = False,
) -> Fetched:
    """Asks every address for the log of one instance. Returns when all have answered or `timeout` has passed.

    With `wait_for_ready` a holder that does not listen yet is waited for until then; without, it is reported
    unreachable at once. Raises Unauthenticated or ProtocolError when a holder refuses.
    """
    deadline = time.monotonic() + timeout
    options = [("grpc.max_receive_message_length", MAX_REPLY)]
    holders = [_Holder(one, channel(one, tls, options)) for one in dict.fromkeys(addresses)]
    request = determinants_pb2.FetchRequest(
        version=VERSION, query=query, node=node, instance=instance, from_offset=from_offset
    )
    try:
        for holder in holders:
            holder.future = _ask(holder, request, token, deadline, wait_for_ready)
        for holder in holders:
            _collect(holder, request, token, deadline, wait_for_ready)
    finally:
        for holder in holders:
            if holder.future is not None:
                holder.future.cancel()
            holder.channel.close()
    return _summary(holders)


def _ask(
    holder: _Holder, request: determinants_pb2.FetchRequest, token: str, deadline: float, wait: bool
) -> Any:
    stub: Any = determinants_pb2_grpc.DeterminantsStub(holder.channel)  # type: ignore[no-untyped-call]
    return stub.Fetch.future(
        request,
        timeout=max(0.001, deadline - time.monotonic()),
        metadata=bearer(token),
        wait_for_ready=wait,
    )


def _collect(
    holder: _Holder, request: determinants_pb2.FetchRequest, token: str, deadline: float, wait: bool
) -> None:
    """All pages of one holder."""
    asked = request.from_offset
    for _ in range(_MAX_PAGES):
        try:
            reply = holder.future.result()
        except grpc.FutureCancelledError:
            holder.failure = "cancelled"
            return
        except grpc.RpcError as error:
            _failed(holder, error)
            return
        holder.name = reply.holder or holder.address
        holder.required = max(holder.required, LogOffset(reply.required))
        holder.damaged |= dict.fromkeys(_damaged(reply))
        holder.marks |= dict.fromkeys(
            HistoryMark(LogOffset(one.begins), LogOffset(one.ends), one.digest) for one in reply.marks
        )
        holder.segments += _segments(reply.segments)
        for number, log in enumerate(reply.own):
            _add(holder, number, log)
        if not reply.next_offset:
            return
        if reply.next_offset <= asked:
            raise ProtocolError(f"holder {holder.address} continues at {reply.next_offset}, before {asked}")
        asked = reply.next_offset
        onward = determinants_pb2.FetchRequest()
        onward.CopyFrom(request)
        onward.from_offset = asked
        onward.onward = True
        holder.future = _ask(holder, onward, token, deadline, wait)
    holder.failure = f"its answer does not end within {_MAX_PAGES} pages"


def _segments(said: Iterable[determinants_pb2.Segment]) -> Iterator[Segment]:
    for one in said:
        yield LogOffset(one.start), one.data


def _damaged(reply: determinants_pb2.FetchReply) -> list[Damage]:
    """A holder of a release before says only what, which may be anything."""
    if not reply.damaged:
        return [Damage(line) for line in reply.corrupt]
    return [
        Damage(one.what, Origin(one.node, one.instance) if one.node else None, one.acts)
        for one in reply.damaged
    ]


def _add(holder: _Holder, number: int, said: determinants_pb2.OwnLog) -> None:
    """A page of one of the holder's own logs of the instance."""
    known = holder.own.get(number, OwnLog())
    holder.own[number] = OwnLog(
        [*known.segments, *_segments(said.segments)],
        tuple(
            Writer(_fence(one, holder.address), LogOffset(one.since), one.copy) for one in said.incarnations
        ),
        known.received + tuple(said.received),
        said.damaged,
    )


def _fence(said: determinants_pb2.Incarnation, address: str) -> Fence:
    try:
        return Fence.unpack(said.wide) if said.wide else Fence.widened(said.fence)
    except ValueError as error:
        raise ProtocolError(f"holder {address}: {error}") from None


def _failed(holder: _Holder, error: grpc.RpcError) -> None:
    call: Any = error
    code = call.code()
    refusal = _REFUSALS.get(code)
    if refusal is not None:
        raise refusal(f"holder {holder.address} refused: {call.details()}") from None
    holder.failure = f"{code.name}: {call.details()}"


def _summary(holders: Sequence[_Holder]) -> Fetched:
    fetched = Fetched()
    for holder in holders:
        if holder.failure is None:
            fetched.replies[holder.address] = HolderReply(
                holder.name,
                holder.segments,
                holder.required,
                tuple(holder.damaged),
                tuple(holder.own.values()),
                tuple(holder.marks),
            )
        else:
            fetched.unreachable.append(Unreachable(holder.address, holder.failure))
    return fetched
