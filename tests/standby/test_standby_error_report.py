"""An error comes with a traceback where that says more than its message."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from clonos import sinks
from clonos.errors import ClonosError, DivergenceError
from clonos_standby.replica.error_report import traceback_of

SCHEMA = pa.schema([("n", pa.int64())])


def raised(sink: Any) -> ClonosError:
    sink.validate(SCHEMA)
    with closing(sink.writer()) as writer:
        writer.open(query="q", node=5, instance=0, fence=1)
        with pytest.raises(ClonosError) as caught:
            writer.write([(1,), (1 << 70,)], ["3-0-1", "3-0-2"], {3: 2}, [])
    return caught.value


@pytest.mark.parametrize("kind", [KeyError, ConnectionError, SystemExit])
def test_where_the_users_function_raised_is_shown(kind: type[BaseException], tmp_path: Path) -> None:
    def write_to_service(rows: list[Any], ids: list[str]) -> None:
        raise kind("no licence")

    text = traceback_of(raised(sinks.call(write_to_service, path=tmp_path, durable=False, patience=0)))
    assert "in write_to_service" in text
    assert text.rstrip().endswith("no licence") or "KeyError: 'no licence'" in text
    assert "direct cause" not in text
    assert "call_sink" not in text


def test_which_lines_of_a_sink_found_it_is_not(tmp_path: Path) -> None:
    error = raised(sinks.sql(f"sqlite:///{tmp_path}/a.db", "out"))
    assert "3-0-2" in str(error)
    assert traceback_of(error) == ""


def test_of_other_errors_all_is_shown() -> None:
    try:
        raise DivergenceError("another digest") from KeyError("a")
    except DivergenceError as error:
        text = traceback_of(error)
    assert "KeyError" in text
    assert text.rstrip().endswith("DivergenceError: another digest")
