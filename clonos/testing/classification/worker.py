"""A process in which an operator is played: `python -m clonos.testing.classification.worker SOCKET FOLDER`.

It has a hash seed of its own, and whatever else differs between processes. Requests and answers go through the socket,
pickled; what the function prints goes nowhere.
"""

from __future__ import annotations

import os
import shutil
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

import cloudpickle

from clonos.errors import ClonosError, ConfigurationError
from clonos.testing.classification.player import Player
from clonos.testing.classification.requests import Answer, Load, Play, Request
from clonos.testing.classification.script import Recorded
from clonos.testing.classification.staged_services import Stage


class Worker:
    """Carries requests out."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._player: Player | None = None

    def answer(self, request: Request) -> Answer:
        try:
            return Answer(self._carried_out(request))
        except ClonosError as error:
            return Answer(error=error)
        except Exception as error:
            last = traceback.format_exception_only(error)[-1].strip()
            return Answer(error=_failed(request, last))

    def _carried_out(self, request: Request) -> Recorded | str | None:
        if isinstance(request, Load):
            stage = Stage(performs_effects=request.performs_effects)
            self._player = Player(cloudpickle.loads(request.pickled), request.key, stage, self._folder)
            return None
        assert self._player is not None, "an operator is loaded first"
        if isinstance(request, Play):
            return self._player.play(request.script)
        return self._player.replay(request.script, request.recording)


def _failed(request: Request, why: str) -> ClonosError:
    if isinstance(request, Load):
        return ConfigurationError(
            f"the operator cannot be played in another process: {why}",
            hint="Its module must be importable there",
        )
    return ConfigurationError(f"the operator could not be played: {why}")


def main() -> None:
    connection: Connection[Answer, Request] = Connection(int(sys.argv[1]))
    folder = Path(sys.argv[2])
    worker = Worker(folder)
    while True:
        try:
            request = connection.recv()
        except EOFError:  # the other end is gone, perhaps killed
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)  # whatever threads the function has started
        connection.send(worker.answer(request))


if __name__ == "__main__":
    main()
