"""What a process in which an operator is played is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from clonos.errors import ClonosError
from clonos.testing.classification.script import Script
from clonos.testing.driver.recording import Recording


@dataclass(frozen=True, slots=True)
class Load:
    """From now on play this operator."""

    pickled: bytes
    key: tuple[str, ...]
    performs_effects: bool


@dataclass(frozen=True, slots=True)
class Play:
    script: Script


@dataclass(frozen=True, slots=True)
class Replay:
    script: Script
    recording: Recording


Request: TypeAlias = Load | Play | Replay


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request came to: a value, or an error."""

    value: Any = None
    error: ClonosError | None = None
