"""What operators read of servers, replicas and the driver: one line per event.

In one of two forms (`spark.clonos.log.format`). As text a line has its time, the process and the message. As JSON it is
an object that also says, as far as that is known, of which query, operator, instance and epoch it speaks, how grave it
is, and by a name that stays the same what has happened. Servers and replicas write to standard error, which is kept:
the server's by the launcher, a replica's by the server. They inherit the form and the query from the driver or the
replica service that starts the server. The driver uses the logger `clonos`.

What others write (a function's own output, stacks of a process that is stuck) stands between these lines as it is.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import enum
import json
import logging
import os
from collections.abc import Mapping
from typing import Any

from clonos.errors import ClonosError

FORMAT = "CLONOS_LOG_FORMAT"
QUERY = "CLONOS_LOG_QUERY"


class LogFormat(enum.Enum):
    TEXT = "text"
    JSON = "json"


class Level(enum.Enum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


_where: dict[str, Any] = {}
_names: dict[int, str] = {}


def name_operators(names: Mapping[int, str]) -> None:
    """By which names this process calls operators and sinks."""
    _names.update(names)


def speak_of(**where: Any) -> None:
    """From now on the lines of this process are about this `node`, `instance` or `epoch`, unless they say otherwise."""
    _where.update(where)


def traced(error: Exception) -> Exception | None:
    """What is logged beside the message of an error (`exc_info`): of one that is not foreseen, its place in code."""
    return None if isinstance(error, ClonosError) else error


def log(event: str, text: str, *, level: Level = Level.WARNING, **where: Any) -> None:
    """One line on standard error."""
    now = dt.datetime.now(dt.UTC)
    if os.environ.get(FORMAT) == LogFormat.JSON.value:
        about = {"query": os.environ.get(QUERY), **_where, **where}
        line = as_json(now, level.value, event, text, about)
    else:
        line = f"{now:%Y-%m-%dT%H:%M:%S}Z process {os.getpid()}: {text}"
    with contextlib.suppress(OSError):  # standard error is a file, and a full disk must not end the process
        os.write(2, f"{line}\n".encode(errors="backslashreplace"))


def as_json(now: dt.datetime, level: str, event: str, text: str, about: Mapping[str, Any]) -> str:
    node = about.get("node")
    said = {
        "time": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": level,
        "query": about.get("query"),
        "operator": _names.get(node, str(node)) if node is not None else None,
        "instance": about.get("instance"),
        "epoch": about.get("epoch"),
        "process": os.getpid(),
        "event": event,
        "message": text,
    }
    return json.dumps({key: value for key, value in said.items() if value is not None})


def inherited(query: str, form: str) -> dict[str, str]:
    """What a server's environment has to say, for it and what it starts."""
    return {FORMAT: form, QUERY: query}


# ------------------------------------------------------------------ the driver


def about(event: str, **where: Any) -> dict[str, Any]:
    """`extra` of a record of the logger `clonos`."""
    return {"event": event, "about": where}


class JsonLines(logging.Formatter):
    """Records of the logger `clonos` in the same form."""

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        now = dt.datetime.fromtimestamp(record.created, dt.UTC)
        event = getattr(record, "event", "message")
        return as_json(now, record.levelname.lower(), event, text, getattr(record, "about", {}))


def driver_writes_json() -> None:
    """To standard error, in place of what the program has set up for its other loggers. Harmless when called again."""
    logger = logging.getLogger("clonos")
    if not any(isinstance(handler.formatter, JsonLines) for handler in logger.handlers):
        handler = logging.StreamHandler()
        handler.setFormatter(JsonLines())
        logger.addHandler(handler)
        logger.propagate = False
