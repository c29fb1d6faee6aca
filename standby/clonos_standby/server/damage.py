"""Damage to a causal log store on disk, of the kind that its checksums find."""

from __future__ import annotations

from pathlib import Path

_WITHOUT_ENTRIES = 200
"""Bytes: a file that is no longer holds no entries."""


def damage(folder: Path) -> int:
    """Flip bytes of every file of a store that holds entries; how many files.

    In a write-ahead log those of the first record's checksum: damage elsewhere may look like an append that never
    ended. The owner must not be running.
    """
    hurt = 0
    for path in [*folder.glob("*.log"), *folder.glob("*.sst")]:
        size = path.stat().st_size
        if size <= _WITHOUT_ENTRIES:
            continue
        with path.open("r+b") as file:
            for at in [0] if path.suffix == ".log" else [size * eighth // 8 for eighth in range(1, 8)]:
                file.seek(at)
                found = file.read(4)
                file.seek(at)
                file.write(bytes(byte ^ 0xFF for byte in found))
        hurt += 1
    return hurt
