"""The holder's side of a recovery: answers what it has of an instance's causal log.

The service knows nothing about where logs are kept: it is given a `lookup`, so that replica servers answer from their
directories and the driver from what sinks keep. What it adds is what every boundary needs: the query's token (compared
in constant time), the version, bounded messages, and errors that the recovering side can tell apart. Requests beyond
what it takes at once are refused: the recovering instance asks again, and meanwhile those that were taken are answered.
So is one that the holder cannot answer now, because it cannot read what it keeps. A log that does not fit into one
message is answered in pages; a page ends where the next begins, on whatever byte that is, since a log is only bytes at
offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeAlias

import grpc

from clonos.errors import ClonosError
from clonos.protocol.fence import Fence
from clonos.protocol.ids import LOG_BEGIN, LogOffset, Origin
from clonos.protocol.recovery.causal.causal_log import Segment, pieces_from
from clonos.protocol.recovery.causal.holding import Damage, HolderReply
from clonos.wire._gen import determinants_pb2, determinants_pb2_grpc
from clonos.wire.boundary import abort, bind, check_caller
from clonos.wire.tls import Tls

VERSION: Final = 2
MAX_REQUEST: Final = 64 * 1024
PAGE_BYTES: Final = 32 * 1024 * 1024
_DAMAGED_LINES: Final = 50
_THREADS: Final = 4
_AT_ONCE: Final = 16

Lookup: TypeAlias = Callable[[Origin, LogOffset], HolderReply]
"""(origin, from_offset) -> what is known. May be called from several threads at once."""


class _Servicer(determinants_pb2_grpc.DeterminantsServicer):
    def __init__(self, lookup: Lookup, token: str, query: str, page_bytes: int) -> None:
        self._lookup = lookup
        self._token = token
        self._query = query
        self._page_bytes = page_bytes

    def Fetch(self, request: determinants_pb2.FetchRequest, context: Any) -> determinants_pb2.FetchReply:
        self._check(request, context)
        if not context.is_active():  # it has waited so long that its caller is gone
            abort(context, grpc.StatusCode.CANCELLED, "the caller is gone")
        from_offset = LogOffset(request.from_offset)
        try:
            reply = self._lookup(Origin.of(request.node, request.instance), from_offset)
        except ClonosError as error:
            code = grpc.StatusCode.UNAVAILABLE if error.retryable else grpc.StatusCode.INTERNAL
            abort(context, code, f"{type(error).__name__}: {error}")
        except OSError as error:
            abort(context, grpc.StatusCode.UNAVAILABLE, f"what is kept here cannot be read now: {error}")
        everything = [*reply.segments, *(piece for log in reply.own for piece in log.segments)]
        _, next_offset = page(everything, from_offset, self._page_bytes)
        damaged = _gravest(reply.damaged)
        return determinants_pb2.FetchReply(
            segments=_segments(reply.segments, from_offset, next_offset),
            required=reply.required,
            corrupt=[damage.what[:1000] for damage in damaged],
            holder=reply.holder,
            next_offset=next_offset,
            damaged=[_damage(damage) for damage in damaged],
            marks=[
                determinants_pb2.HistoryMark(begins=mark.begins, ends=mark.ends, digest=mark.digest)
                for mark in reply.marks
            ],
            own=[
                determinants_pb2.OwnLog(
                    segments=_segments(log.segments, from_offset, next_offset),
                    incarnations=[
                        determinants_pb2.Incarnation(
                            wide=Fence(one.fence).pack(), since=one.since, copy=one.copy
                        )
                        for one in log.incarnations
                    ],
                    received=[] if request.onward else log.received,
                    damaged=log.damaged,
                )
                for log in reply.own
            ],
        )

    def _check(self, request: determinants_pb2.FetchRequest, context: Any) -> None:
        check_caller(context, self._token, "query", request.version, VERSION)
        if request.query and self._query and request.query != self._query:
            abort(context, grpc.StatusCode.INVALID_ARGUMENT, f"query {request.query!r} is not served here")


def _gravest(damaged: Sequence[Damage]) -> list[Damage]:
    """One of each owner and gravity at least; how many more there are is for people."""
    kinds = {(damage.owner, damage.acts): damage for damage in damaged}
    rest = [damage for damage in damaged if damage not in kinds.values()]
    return [*kinds.values(), *rest[:_DAMAGED_LINES]]


def _damage(damage: Damage) -> determinants_pb2.Damage:
    said = determinants_pb2.Damage(what=damage.what[:1000], acts=damage.acts)
    if damage.owner is not None:
        said.node, said.instance = damage.owner
    return said


def _segments(
    segments: Iterable[Segment], start: LogOffset, stop: LogOffset
) -> list[determinants_pb2.Segment]:
    """What lies between two offsets; a `stop` of 0 is the end."""
    found = []
    for at, data in sorted(segments):
        piece = data[max(0, start - at) : stop - at if stop else None] if not stop or at < stop else b""
        if piece:
            found.append(determinants_pb2.Segment(start=max(at, start), data=piece))
    return found


def page(segments: Iterable[Segment], start: LogOffset, limit: int) -> tuple[list[Segment], LogOffset]:
    """The pieces from `start` on, up to about `limit` bytes, and the offset of the rest (0: there is none)."""
    wanted = sorted(pieces_from(segments, start))
    room = limit
    cut: LogOffset | None = None
    for at, data in wanted:
        if cut is None and len(data) > room:
            cut = LogOffset(max(at + room, start + 1))
        room -= len(data)
    if cut is None:
        return wanted, LOG_BEGIN
    return [(at, data[: cut - at]) for at, data in wanted if at < cut], cut


def merged(pieces: Iterable[Segment]) -> list[Segment]:
    """Overlapping and adjacent pieces joined; what contradicts the rest stays a piece of its own, for the asker to
    find."""
    joined: list[tuple[LogOffset, bytearray]] = []
    for start, data in sorted(pieces, key=lambda piece: (piece[0], -len(piece[1]))):
        if joined:
            last_start, last = joined[-1]
            end = last_start + len(last)
            overlap = data[: end - start]
            if start <= end and last[start - last_start : start - last_start + len(overlap)] == overlap:
                last += data[end - start :]
                continue
        joined.append((start, bytearray(data)))
    return [(start, bytes(data)) for start, data in joined]


class DeterminantServer:
    """A running gRPC server for one query."""

    def __init__(
        self,
        lookup: Lookup,
        token: str,
        *,
        query: str = "",
        host: str = "127.0.0.1",
        port: int = 0,
        tls: Tls | None = None,
        threads: int = _THREADS,
        at_once: int = _AT_ONCE,
        page_bytes: int = PAGE_BYTES,
    ) -> None:
        options = [("grpc.max_receive_message_length", MAX_REQUEST), ("grpc.so_reuseport", 0)]
        self._server = grpc.server(
            ThreadPoolExecutor(threads, thread_name_prefix="determinants"),
            options=options,
            maximum_concurrent_rpcs=at_once,
        )
        servicer = _Servicer(lookup, token, query, page_bytes)
        add: Any = determinants_pb2_grpc.add_DeterminantsServicer_to_server
        add(servicer, self._server)
        self.address = f"{host}:{bind(self._server, host, port, tls, 'the determinant service')}"
        self._server.start()

    def stop(self, grace: float = 0.5) -> None:
        self._server.stop(grace).wait()

    def __enter__(self) -> DeterminantServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
