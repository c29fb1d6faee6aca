"""What goes over the wire between conduit and replica. Frames towards the conduit are the core's own events."""

from __future__ import annotations

from dataclasses import dataclass

from clonos.protocol.engine.instance import Bundle
from clonos.protocol.roles.conduit_model import Output
from clonos.sim.records import Mark, Record, RoundMark


@dataclass(frozen=True, slots=True)
class BundleFrame:
    seq: int
    bundle: Bundle


@dataclass(frozen=True, slots=True)
class OutputFrame:
    """OUTPUT with its rows; `log_end` is what checkers compare with."""

    output: Output
    records: tuple[tuple[int, Record], ...]  # destination, record
    marks: tuple[tuple[int, Mark | RoundMark], ...] = ()  # behind them
