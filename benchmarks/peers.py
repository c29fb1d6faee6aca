"""Clonos beside its peers: one operator that diverges when it is repeated, one input, one kill, several systems.

The operator is the ledger (`clonos.testing.ledger`): per key a hash chain over input ids, random draws and clock
readings, so that what becomes visible judges itself. Each system follows the same embedded log. When it is warm a
burst is appended (throughput), then records come at a steady rate (latency until visible), and with --kill one
process that runs the function is killed after a third of that (recovery, and what a reader saw that was not so).
Every run is in fresh processes and a fresh folder; the systems take turns.

    python benchmarks/peers.py [--peers flink,bytewax,clonos] [--rate 500] [--seconds 60] [--kill] [--rounds 3]

Peers are installed into virtual environments of their own; one that cannot be is left out, and it is said why. What
each guarantees and how it was set up: docs/peers.md.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from peers_kit.environment import Unavailable
from peers_kit.feed import Feed
from peers_kit.figures import Course, Figures, figures, head, line
from peers_kit.sides import KNOWN, Peer, Side
from peers_kit.visible import Reader

WARM_UP_S = 5.0
PATIENCE_S = 120.0
_LOOK_S = 0.1


class Failed(Exception):
    """A run that came to nothing; the text says why."""


def await_(side: Side, reader: Reader, reached: Callable[[], bool], what: str) -> None:
    """Until that is so; fails when there was nothing new for long."""
    last, since = -1, time.monotonic()
    while not reached():
        if (trouble := side.trouble()) is not None:
            raise Failed(f"it ended before {what}: {trouble}")
        if len(reader.rows) != last:
            last, since = len(reader.rows), time.monotonic()
        elif time.monotonic() - since > PATIENCE_S:
            raise Failed(f"no new row for {PATIENCE_S:.0f} s before {what}; {last} rows so far")
        time.sleep(_LOOK_S)


def all_seen(reader: Reader, count: int) -> Callable[[], bool]:
    """Whether that many different inputs have a row."""
    return lambda: len(reader.rows) >= count and len({row[2] for row in list(reader.rows)}) >= count


def run(peer: Peer, folder: Path, options: argparse.Namespace) -> Figures:
    log = str(folder / "in")
    feed = Feed(log, options.warm, options.records, options.rate, options.seconds)
    side = peer.make(folder, log, options.interval)
    reader = side.reader()
    strike = None
    try:
        feed.start()
        side.start()
        reader.start()
        await_(side, reader, all_seen(reader, feed.warm), "it was warm")
        burst_at = feed.burst()
        await_(side, reader, all_seen(reader, feed.live), "the burst was through")
        begin, end = time.time() + WARM_UP_S, time.time() + options.seconds
        feed.steady.set()
        if options.kill:
            time.sleep(WARM_UP_S + (options.seconds - WARM_UP_S) / 3)
            strike = side.kill()
        await_(side, reader, lambda: not feed.is_alive(), "the input ended")
        await_(side, reader, all_seen(reader, feed.total), "all was visible")
    finally:
        feed.close()
        reader.close()
        side.close()
    course = Course(feed.warm, feed.live, burst_at, feed.sent, begin, end, strike)
    return figures(reader.rows, reader.seen, course)


def ready(names: list[str], base: Path) -> list[Peer]:
    """The peers that can be run here."""
    found: list[Peer] = []
    for name in names:
        try:
            found += KNOWN[name](base)
        except Unavailable as reason:
            print(f"{name} is left out: {reason}", flush=True)
    return found


def default_base() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clonos-peers"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", default="flink,bytewax,clonos")
    parser.add_argument("--rate", type=int, default=500, help="records a second")
    parser.add_argument("--seconds", type=float, default=60, help="for so long, of which 5 are warm-up")
    parser.add_argument("--kill", action="store_true", help="after a third of them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=50_000, help="in the burst")
    parser.add_argument("--warm", type=int, default=20_000, help="records before that")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between the peers' snapshots")
    parser.add_argument("--env", type=Path, default=default_base(), help="where the peers are installed")
    options = parser.parse_args()
    names = options.peers.split(",")
    if unknown := set(names) - KNOWN.keys():
        parser.error(f"there is no peer {', '.join(sorted(unknown))}; there are {', '.join(KNOWN)}")
    peers = ready(names, options.env.absolute())
    runs: dict[str, list[Figures]] = {peer.name: [] for peer in peers}
    with tempfile.TemporaryDirectory(prefix="clonos-peers-") as base:
        for number in range(options.rounds):
            for peer in peers:
                folder = Path(base, f"{number}-{peer.name.replace(', ', '-').replace(' ', '-')}")
                folder.mkdir()
                try:
                    runs[peer.name].append(run(peer, folder, options))
                    print(f"round {number + 1}: {peer.name}: {runs[peer.name][-1]}", flush=True)
                except (Failed, Unavailable) as reason:
                    print(f"round {number + 1}: {peer.name} failed: {reason}", flush=True)
    print(head())
    for peer in peers:
        print(line(f"{peer.name} {peer.version}", runs[peer.name]))


if __name__ == "__main__":
    main()
