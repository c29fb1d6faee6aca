"""What a delta says about one log, said in the simplest way: tests compare the library's own ways with it."""

from __future__ import annotations

from clonos.protocol.recovery.causal.delta import decode_delta


def segments_for(raw: bytes, node: int, instance: int) -> tuple[list[tuple[int, bytes]], int]:
    """What a delta says about one origin: pieces of its log, and how far that log reached (0: nothing said)."""
    segments: list[tuple[int, bytes]] = []
    required = 0
    for entry in decode_delta(raw):
        if entry.origin == (node, instance):
            required = max(required, entry.end)
            if entry.data is not None:
                segments.append((entry.start, entry.data))
    return segments, required
