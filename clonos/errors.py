"""The one exception tree.

Every message says what went wrong, where (operator, instance, epoch, position) and what to do. An error is
*retryable* when running the epoch again, from the last committed snapshot, can succeed without a change of anything;
the query handle and the conduit decide by that flag alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a running query. `None` means unknown or not applicable."""

    operator: str | None = None
    instance: int | None = None
    epoch: int | None = None
    channel: int | None = None
    position: int | None = None

    def __str__(self) -> str:
        parts = [
            f"{name} {value!r}"
            for name, value in (
                ("operator", self.operator),
                ("instance", self.instance),
                ("epoch", self.epoch),
                ("channel", self.channel),
                ("position", self.position),
            )
            if value is not None
        ]
        return ", ".join(parts) or "place unknown"


class ClonosError(Exception):
    """Root of everything this library raises on purpose."""

    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, where: Where | None = None, hint: str | None = None) -> None:
        self.message = message
        self.where = where
        self.hint = hint
        text = message
        if where is not None:
            text += f" ({where})"
        if hint is not None:
            text += f". {hint}"
        super().__init__(text)

    def at(self, where: Where) -> ClonosError:
        """The same error with a place, where it does not name one."""
        return self if self.where is not None else _rebuild(type(self), self.message, where, self.hint)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.where, self.hint))


def _rebuild(kind: type[ClonosError], message: str, where: Where | None, hint: str | None) -> ClonosError:
    return kind(message, where=where, hint=hint)


class ConfigurationError(ClonosError):
    """A setting, session or environment that a causal query cannot run with."""


class NotRunning(ClonosError):
    """There is no running query where one is asked for."""


class AlreadyRunning(ClonosError):
    """Another driver leads the query that is to be started."""


class QueryDefinitionError(ClonosError):
    """The query asks for something that is not supported or does not fit; raised when it is built."""


class CheckpointMismatch(ClonosError):
    """The checkpoint belongs to another query, parallelism or format."""


class InputError(ClonosError):
    """Records that cannot be taken: a position that steps back, a schema that does not fit."""


class InputLost(InputError):
    """Records that the query has not read yet are gone from its source."""


class ExpressionError(ClonosError):
    """An expression before `causal()` failed on a record, as it will whenever the record is read."""


class ProtocolError(ClonosError):
    """A peer said something that the protocol does not allow."""


class Unauthenticated(ProtocolError):
    """A peer without the query's token."""


class Fenced(ProtocolError):
    """A newer incarnation has taken over; this one must not write any more."""


class LogCorrupt(ClonosError):
    """A causal log or delta whose checksum, version or structure is wrong. It is never replayed."""


class LogConflict(ClonosError):
    """Two holders tell different histories of the same instance."""


class GapError(ClonosError):
    """An instance or a sink depends on determinants that no holder has."""


class DivergenceError(ClonosError):
    """A replay asked for something else, or produced something else, than was recorded."""


class SnapshotCorrupt(ClonosError):
    """A snapshot file is missing, truncated or altered."""


class StateError(ClonosError):
    """A state value that cannot be kept, or kept state that no longer fits its declared type."""


class UserFunctionError(ClonosError):
    """The user's function raised. Its exception is told of in the message, and is the cause where it was raised in this
    process."""


class RecordedError(ClonosError):
    """A recorded call or effect raised; the class of its exception cannot be built again in a replica."""


class PurityError(ClonosError):
    """A function declared pure asked for a causal service."""


class SinkError(ClonosError):
    """The sink refused rows in a way that trying again cannot mend."""


class SinkUnavailable(ClonosError):
    """The sink cannot be reached now."""

    retryable = True


class ReaderError(ClonosError):
    """A reader of rows that a sink has written cannot go on."""


class StorageUnavailable(ClonosError):
    """Local disk or checkpoint storage failed (full, unreachable)."""

    retryable = True


class InputForgotten(StorageUnavailable):
    """Records that a replica needs are not kept any more: the snapshot that covered them cannot be read."""


class ReplicaLost(ClonosError):
    """A replica was lost and could not be replaced."""

    retryable = True


class PoisonRecord(ReplicaLost):
    """Every replica died at the same record."""

    retryable = False


class ResumeFailed(ClonosError):
    """An instance cannot go on from inside an epoch: a new replica would fail alike, the epoch run again will not."""

    retryable = True


class RollbackNeeded(ClonosError):
    """A process is lost, and with the query's recovery none takes its place alone: all instances go back together."""

    retryable = True


class RecoveryTimeout(ClonosError):
    """Recovery did not finish within its deadline."""

    retryable = True


class CounterExhausted(ClonosError):
    """A counter has come to its end. Nothing is done under a number that would have been used before."""


class FaultInjected(ClonosError):
    """A scripted failure of a task."""

    retryable = True
