"""The input: the same records at the same rate for all, in one embedded log that each system follows on its own.

A record has a key and an id. Ids count up; every key gets records from both partitions, so that the order in which its
chain grows depends on arrival.
"""

from __future__ import annotations

import json
import threading
import time

from clonos.sources.log_writer import LogWriter

PARTITIONS = 2
KEYS = 1000
SLOT = 0.005


def record(number: int) -> bytes:
    return json.dumps({"k": f"k{number % KEYS}", "id": str(number)}).encode()


def partition_of(number: int) -> int:
    return number * 7 % 11 % PARTITIONS


class Feed(threading.Thread):
    """Writes `warm` records at once; a `burst` of them when told to; after `steady` is set `rate` a second for so long.

    `sent` holds when each of the last kind was appended; the first of them has the id `live`.
    """

    def __init__(self, log: str, warm: int, burst: int, rate: int, seconds: float) -> None:
        super().__init__(name="feed", daemon=True)
        self._writer = LogWriter(log, PARTITIONS)
        self.warm, self.live = warm, warm + burst
        self._rate, self._seconds = rate, seconds
        self.sent: list[float] = []
        self.steady = threading.Event()
        self.abandoned = threading.Event()
        self._burst = self._made(range(self.warm, self.live))
        self._append(self._made(range(warm)))

    def _made(self, numbers: range) -> list[list[bytes]]:
        return [
            [record(number) for number in numbers if partition_of(number) == partition]
            for partition in range(PARTITIONS)
        ]

    def _append(self, made: list[list[bytes]]) -> None:
        for partition, records in enumerate(made):
            if records:
                self._writer.append_many(partition, records)

    def burst(self) -> float:
        """Append the burst; when that was."""
        now = time.time()
        self._append(self._burst)
        return now

    @property
    def total(self) -> int:
        return self.live + len(self.sent)

    def run(self) -> None:
        self.steady.wait()
        begin, wanted = time.monotonic(), int(self._rate * self._seconds)
        while not self.abandoned.is_set() and len(self.sent) < wanted:
            due = min(int((time.monotonic() - begin) * self._rate), wanted)
            fresh = range(self.total, self.live + due)
            now = time.time()
            self._append(self._made(fresh))
            self.sent += [now] * len(fresh)
            time.sleep(SLOT)
        self._writer.close()

    def close(self) -> None:
        self.abandoned.set()
        self.steady.set()
        self.join()
