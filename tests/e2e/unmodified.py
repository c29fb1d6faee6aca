"""The functions of the self-judging job, written as by authors who know nothing of `ctx` but its state."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from random import getrandbits
from typing import Any

import numpy as np
from ledger_job import BUCKETS

from clonos.testing.ledger import extend, micros


def first(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    draw = uuid.uuid4().int & 0xFFFFFFFF ^ int(random.random() * 2**40) ^ int(np.random.randint(2**30))
    at = micros(datetime.now(UTC))
    entry = extend(ctx.state, key[0], row.id, draw ^ time.monotonic_ns() % 2**30, at)
    yield (*entry.row(), str(int(row.id) % BUCKETS))


def second(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    entry = extend(ctx.state, key[0], row.a_hash, getrandbits(48), int(time.time() * 1e6))
    yield (*entry.row(), *row)
