"""Recorded calls are tried again in a process of their own, as replicas are: with their hash seed, Python's own clocks
intercepted before the functions' modules are loaded where that was so then, and each call in a fork, so that none finds
what another one has left in the modules.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from clonos.environment import repeating_environment
from clonos.errors import ClonosError

LONGEST_SECONDS: Final = 120.0


class TrialProcess:
    """Started with the first call. What functions print goes to the standard error. Use it from one thread."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._answers: Any = None

    def __enter__(self) -> TrialProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def differences(self, path: Path) -> list[str]:
        """Between what the function of a recorded call said then and says now; why it cannot be told is one, too."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._start()
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(str(path.resolve())) + "\n")
        self._process.stdin.flush()
        try:
            answer = self._answers.readline()
        except BaseException:  # it is not waited for any more: what the function does ends, too
            os.killpg(self._process.pid, signal.SIGKILL)
            raise
        if not answer:
            return ["the process that tries recorded calls again has ended"]
        found: list[str] = json.loads(answer)
        return found

    def close(self) -> None:
        """The process ends."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.wait()
            self._answers.close()

    def _start(self) -> None:
        read, write = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "clonos.archive.trial_process", str(write)],
            stdin=subprocess.PIPE,
            stdout=sys.__stderr__,
            pass_fds=(write,),
            text=True,
            process_group=0,  # Ctrl+C is this process's, which ends it
            env=repeating_environment(),
        )
        os.close(write)
        self._answers = os.fdopen(read, encoding="utf-8")


def main() -> None:
    """Answers a line with a path by a line with a list of differences."""
    with os.fdopen(int(sys.argv[1]), "w", encoding="utf-8") as answers:
        for line in sys.stdin:
            print(json.dumps(_tried(Path(json.loads(line)))), file=answers, flush=True)


def _tried(path: Path) -> list[str]:
    from clonos.archive.trial import differences, try_again
    from clonos.operators.intercept.install import install, rebind
    from clonos.operators.named_object import named_object
    from clonos.storage.recorded_calls import decode

    try:
        call = decode(path.read_bytes(), str(path))
        if call.intercept:
            install()
            rebind()  # modules that were loaded before
        fn = named_object(call.function)
    except (ClonosError, OSError) as error:
        return [str(error)]
    except Exception as error:  # of the module
        return [f"{type(error).__name__}: {error}"]

    def told() -> list[str]:
        try:
            return differences(call, try_again(call, fn))
        except ClonosError as error:
            cause = error.__cause__
            return [str(error), *([] if cause is None else [f"{type(cause).__name__}: {cause}"])]
        except Exception as error:
            return [f"{type(error).__name__}: {error}"]

    return _in_a_fork(told)


def _in_a_fork(told: Any) -> list[str]:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            with os.fdopen(write, "w", encoding="utf-8") as answer:
                answer.write(json.dumps(told()))
            sys.stdout.flush()
        finally:
            os._exit(0)  # whatever the function has raised: it is not this process that goes on
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as answer:
        ready, _, _ = select.select([answer], [], [], LONGEST_SECONDS)
        if not ready:
            os.kill(child, 9)
        said = answer.read() if ready else ""
    os.waitpid(child, 0)
    if not ready:
        return [f"it has taken longer than {LONGEST_SECONDS:g} s"]
    found: list[str] = json.loads(said) if said else ["it has ended its process"]
    return found


if __name__ == "__main__":
    main()
