"""pytest tries recorded calls again: each `.call` file in a folder that it looks into is a test.

    clonos export <checkpoint> --row 3-1-172 --to tests/decisions
    pytest tests/decisions

A call is what a function was given for one record, by `clonos export` out of the archive of a query that ran. The test
gives it to the function of that name as it stands today, and fails where rows, state, timers, or what it asks for are
other ones than then.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_SUFFIX = ".call"
_MAGIC = b"CLRC"


class CallHasChanged(Exception):
    """The function says something else than then."""


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix != _SUFFIX or file_path.read_bytes()[: len(_MAGIC)] != _MAGIC:
        return None
    collector: pytest.Collector = CallFile.from_parent(parent, path=file_path)
    return collector


class CallFile(pytest.File):
    """With one call."""

    def collect(self) -> Iterator[pytest.Item]:
        yield CallItem.from_parent(self, name=self.path.stem)


class CallItem(pytest.Item):
    """Tries it again."""

    def runtest(self) -> None:
        from clonos.archive.trial import differences, try_again
        from clonos.operators.intercept.install import install, rebind, uninstall
        from clonos.operators.named_object import named_object
        from clonos.storage.recorded_calls import decode

        call = decode(self.path.read_bytes(), str(self.path))
        self.function = call.function
        if call.intercept:
            install()
        try:
            fn = named_object(call.function)
            if call.intercept:
                rebind()  # modules that were loaded before
            if lines := differences(call, try_again(call, fn)):
                record = call.table().to_pylist()[0]
                head = f"{call.function} says something else than in epoch {call.epoch} for row {call.row}, of {record}"
                raise CallHasChanged("\n".join([head, *lines]))
        finally:
            if call.intercept:
                uninstall()

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        from clonos.errors import ClonosError

        if isinstance(excinfo.value, CallHasChanged | ClonosError):
            cause = excinfo.value.__cause__
            return f"{excinfo.value}" + (f"\n{type(cause).__name__}: {cause}" if cause is not None else "")
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"recorded call {self.name}"
