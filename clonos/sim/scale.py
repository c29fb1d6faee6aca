"""Virtual clusters: what causal logging costs on the wire and in memory, far beyond what one machine can run.

In a layered all-to-all dataflow all instances of a layer are alike, so one representative per layer is enough: it
keeps a real journal (`protocol.recovery.causal.delta_journal`), receives real deltas of real steps from as many
upstream instances as there would be, and stamps rows for as many destinations. What is assumed is only that its
upstream instances know a piece one bundle per hop after it was made. Nothing is fitted: the bytes are those that the
codec makes.

A destination is sent what it lacks whenever a row goes to it, so with P instances per layer every piece of a log
reaches an instance of the next layer P times, and is taken once. That is why the cost per record grows with P and
with depth, and what a finite sharing depth saves.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from clonos.protocol.frontier import runs_of
from clonos.protocol.ids import LogOffset, Origin
from clonos.protocol.recovery.causal import determinant_codec as codec
from clonos.protocol.recovery.causal.delta import encode_delta, encode_entry
from clonos.protocol.recovery.causal.delta_journal import FULL, DeltaJournal


@dataclass(frozen=True)
class Cluster:
    """Layers of operators, each of so many instances, every instance feeding all of the next layer."""

    layers: int
    parallelism: int
    sharing: int = FULL
    records_per_second: int = 1_000  # per instance
    bundles_per_second: int = 20

    @property
    def instances(self) -> int:
        return self.layers * self.parallelism

    @property
    def bundle(self) -> int:
        return max(self.records_per_second // self.bundles_per_second, 1)


@dataclass(frozen=True)
class Figures:
    """What instances of the last layer but one send to the last layer, and what those of the last send to the sink."""

    cluster: Cluster
    own_log_per_record: float  # bytes an instance adds to its own log
    wire_per_record: float  # bytes of deltas per row between the last two layers
    sink_per_record: float  # bytes of deltas per row to the sink, and so in its log
    journal_per_second: float  # log bytes an instance of the last layer keeps, per second not yet committed


def simulate(cluster: Cluster, *, seed: int = 0) -> Figures:
    """The figures of one cluster."""
    rng = Random(f"{seed}/{cluster}")
    step = sum(len(step_of(cluster, rng)) for _ in range(8)) / 8
    wire = Representative(cluster, max(cluster.layers - 1, 1), round(step), rng)
    wire.run(cluster.parallelism)
    last = Representative(cluster, cluster.layers, round(step), rng)
    last.run(1)
    return Figures(
        cluster,
        own_log_per_record=step / cluster.bundle,
        wire_per_record=wire.sent_per_record,
        sink_per_record=last.sent_per_record,
        journal_per_second=last.received_per_round * cluster.bundles_per_second,
    )


def step_of(cluster: Cluster, rng: Random) -> bytes:
    """One step of a ledger: a bundle from all upstream channels, the clock, the end."""
    channels = [Origin.of(1, rng.randrange(cluster.parallelism)).channel for _ in range(cluster.bundle)]
    entries = bytearray()
    codec.append_order(entries, runs_of(channels))
    codec.append_clock(entries, 1_780_000_000_000_000)
    codec.append_sent(entries, cluster.bundle, rng.getrandbits(32))
    return codec.seal(entries)


class Representative:
    """One instance of a layer, bundle after bundle."""

    def __init__(self, cluster: Cluster, layer: int, step: int, rng: Random) -> None:
        self._cluster = cluster
        self._layer = layer
        self._step = step
        self._rng = rng
        self._journal = DeltaJournal(cluster.sharing)
        self._origin = Origin.of(layer, 0)
        # By upstream instance: the last bundle it sent us pieces of
        self._last_heard = [-1] * cluster.parallelism
        self._blobs: dict[tuple[int, int], bytes] = {}
        self.sent_per_record = 0.0
        self.received_per_round = 0.0

    def run(self, destinations: int) -> None:
        """Until marks have settled, and then as long again."""
        warm = self._gap(destinations)
        sent = rows = received = 0
        for number in range(2 * warm + 4):
            before = self._journal.size
            self._receive(number)
            self._journal.append_own(self._origin, LogOffset(number * self._step), bytes(self._step))
            deltas = self._emit(destinations)
            if number >= warm + 2:
                sent, rows = sent + deltas, rows + self._cluster.bundle
                received += self._journal.size - before
        self.sent_per_record = sent / rows
        self.received_per_round = received * self._cluster.bundle / rows

    def _gap(self, destinations: int) -> int:
        """About how many bundles pass between two rows for one destination."""
        return max(round(max(destinations, self._cluster.parallelism) / self._cluster.bundle * 2), 2)

    def _emit(self, destinations: int) -> int:
        hit = {self._rng.randrange(destinations) for _ in range(self._cluster.bundle)}
        return sum(len(self._journal.delta_for(destination) or b"") for destination in sorted(hit))

    def _receive(self, number: int) -> None:
        """What the upstream instances that have rows for us stamp on them."""
        if self._layer == 1:
            return
        parallelism = self._cluster.parallelism
        for sender in sorted({self._rng.randrange(parallelism) for _ in range(self._cluster.bundle)}):
            first = self._last_heard[sender] + 1
            self._last_heard[sender] = number
            pieces = [
                self._entry(Origin.of(self._layer - 1, sender), at, 1) for at in range(first, number + 1)
            ]
            for hop in range(2, self._layer):
                pieces += [self._of_layer(hop, at - hop + 1) for at in range(first, number + 1)]
            self._journal.receive(encode_delta(pieces))

    def _of_layer(self, hop: int, at: int) -> bytes:
        """The pieces of all instances of a layer further up, made in one bundle."""
        if at < 0:
            return b""
        known = self._blobs.get((hop, at))
        if known is None:
            layer = self._layer - hop
            known = b"".join(
                self._entry(Origin.of(layer, each), at, hop) for each in range(self._cluster.parallelism)
            )
            self._blobs[hop, at] = known
        return known

    def _entry(self, origin: Origin, at: int, hop: int) -> bytes:
        data = bytes(self._step) if hop <= self._cluster.sharing else None
        return encode_entry(origin, LogOffset(at * self._step), self._step, hop, data)
