"""pytest tries recorded calls again: each `.call` file in a folder that it looks into is a test, whatever is in it: one
that is damaged fails, and is not passed over. Another program's is named in `collect_ignore_glob` of a conftest.py.

    # conftest.py
    pytest_plugins = ["clonos.testing.pytest_plugin"]

    clonos export <checkpoint> --row 3-1-172 --to tests/decisions
    pytest tests/decisions

A call is what a function was given for one record, by `clonos export` out of the archive of a query that ran. The test
gives it to the function of that name as it stands today, in a process of its own, and fails where rows, state, timers,
draws, effects, or what it asks for, are other ones than then.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_SUFFIX = ".call"
_HINT = (
    "Bring it back from version control (by `git lfs pull`, if it is kept so), or run `clonos export` again. If it is "
    "another program's, name it in collect_ignore_glob in a conftest.py beside it"
)


class CallHasChanged(Exception):
    """The function says something else than then."""


_TRIALS = pytest.StashKey[Any]()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix != _SUFFIX:
        return None
    collector: pytest.Collector = CallFile.from_parent(parent, path=file_path)
    return collector


def pytest_unconfigure(config: pytest.Config) -> None:
    if (trials := config.stash.get(_TRIALS, None)) is not None:
        trials.close()


class CallFile(pytest.File):
    """With one call."""

    def collect(self) -> Iterator[pytest.Item]:
        yield CallItem.from_parent(self, name=self.path.stem)


class CallItem(pytest.Item):
    """Tries it again."""

    def runtest(self) -> None:
        from clonos.archive.trial_process import TrialProcess
        from clonos.errors import LogCorrupt
        from clonos.storage.recorded_calls import decode

        try:
            call = decode(self.path.read_bytes(), str(self.path))
        except LogCorrupt as error:
            raise LogCorrupt(error.message, hint=_HINT) from error
        trials = self.config.stash.setdefault(_TRIALS, TrialProcess())
        if lines := trials.differences(self.path):
            record = call.table().to_pylist()[0]
            head = f"{call.function} says something else than in epoch {call.epoch} for row {call.row}, of {record}"
            raise CallHasChanged("\n".join([head, *lines]))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        from clonos.errors import ClonosError

        if isinstance(excinfo.value, CallHasChanged | ClonosError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"recorded call {self.name}"
