"""The processes in which an operator is played.

The first one records. The others repeat what it has recorded, as a replica would that takes over: one with the same
hash seed, which replicas have in common, and some with others, in which sets of texts have another order.
"""

from __future__ import annotations

import enum
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, Final

from clonos.api.streams import CausalStream
from clonos.errors import QueryDefinitionError, UserFunctionError
from clonos.operators.broadcast import BroadcastVariable
from clonos.spark.function_pickler import pickled
from clonos.testing.classification.requests import Answer, Load, Play, Replay, Request
from clonos.testing.classification.script import Recorded, Script
from clonos.testing.driver.recording import Recording

OF_REPLICAS: Final = 0
"""The hash seed of replicas."""
_OTHER_SEEDS: Final = (1, 2, 3)
DEADLINE_S: Final = 120.0
_STARTED_S: Final = 240.0
"""How long the processes may take to start, and to load an operator."""
_IN_MEMORY: Final = Path("/dev/shm")
"""A file system in which nothing waits for a disk; nothing that is kept here has to last."""


class Place(enum.Enum):
    """Where a recorded run is repeated. What differs in one place differs in those behind it, too."""

    SAME_PROCESS = "another instance in the same process"
    OTHER_PROCESS = "another process"
    OTHER_HASH_SEED = "another process, with another hash seed"


@dataclass(frozen=True, slots=True)
class Difference:
    """A replay that differs: where, and in what."""

    place: Place
    what: str


class Laboratory:
    """Starts the processes when it is entered, and ends them when it is left. Operators are examined one after the
    other."""

    def __init__(self, *, deadline_s: float = DEADLINE_S) -> None:
        """`deadline_s` is how long one run of the operator may take."""
        self._deadline_s = deadline_s
        self._workers: list[_Worker] = []

    def __enter__(self) -> Laboratory:
        fast = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None
        self._folder = Path(tempfile.mkdtemp(prefix="clonos-classify-", dir=fast))
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> None:
        self._folder.mkdir(exist_ok=True)  # a process that was given up may have removed it
        self._workers = [
            _Worker(Place.SAME_PROCESS, OF_REPLICAS, self._folder),
            _Worker(Place.OTHER_PROCESS, OF_REPLICAS, self._folder),
            *[_Worker(Place.OTHER_HASH_SEED, seed, self._folder) for seed in _OTHER_SEEDS],
        ]

    def _end(self) -> None:
        for worker in self._workers:
            worker.end()

    def load(self, operator: CausalStream, name: str, key: Sequence[str], *, performs_effects: bool) -> None:
        """From now on play this operator. Raises QueryDefinitionError where it cannot go to another process."""
        load = Load(pickled(operator, name, _refuse_broadcast), tuple(key), performs_effects)
        self._ask(self._workers, load, max(_STARTED_S, self._deadline_s))

    def play(self, script: Script) -> Recorded:
        (recorded,) = self._ask(self._workers[:1], Play(script), self._deadline_s)
        played: Recorded = recorded
        return played

    def replay(self, places: Collection[Place], script: Script, recording: Recording) -> list[Difference]:
        """Repeat a run in the processes of these places; what differs there, first in the first place."""
        there = [worker for worker in self._workers if worker.place in places]
        answers = self._ask(there, Replay(script, recording), self._deadline_s)
        return [Difference(worker.place, what) for worker, what in zip(there, answers, strict=True) if what]

    def _ask(self, workers: Sequence[_Worker], request: Request, deadline_s: float) -> list[Any]:
        """What each worker answers. All have answered before an error is raised. Where one has not, all begin anew."""
        try:
            for worker in workers:
                worker.send(request)
            answers = [worker.receive(deadline_s) for worker in workers]
        except UserFunctionError:
            self._end()
            self._start()
            raise
        for answer in answers:
            if answer.error is not None:
                raise answer.error
        return [answer.value for answer in answers]


class _Worker:
    """This end of a process."""

    def __init__(self, place: Place, hash_seed: int, folder: Path) -> None:
        self.place = place
        self._connection, theirs = Pipe()
        known = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "clonos.testing.classification.worker",
                str(theirs.fileno()),
                str(folder),
            ],
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": known},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        theirs.close()

    def send(self, request: Request) -> None:
        try:
            self._connection.send(request)
        except (BrokenPipeError, ConnectionResetError):
            raise self._ended() from None

    def receive(self, deadline_s: float) -> Answer:
        try:
            if not self._connection.poll(deadline_s):
                raise UserFunctionError(
                    f"the function did not come back within {deadline_s:g} s",
                    hint="Give it rows that it is done with sooner, or more time",
                )
            answer: Answer = self._connection.recv()
        except (EOFError, ConnectionResetError):
            raise self._ended() from None
        return answer

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._connection.close()

    def _ended(self) -> UserFunctionError:
        code = self._process.wait()
        return UserFunctionError(
            f"the process in which the function was tried has ended, with exit code {code}",
            hint="A function that ends its process cannot be classified",
        )


def _refuse_broadcast(variable: Any) -> BroadcastVariable:
    raise QueryDefinitionError(
        "a broadcast variable, which is there in a query alone", hint="Give the function the value itself"
    )
