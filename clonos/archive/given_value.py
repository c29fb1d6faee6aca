"""Values of columns as people and programs write them, on a command line or in JSON: by the type of the column.

What is shown of a value (`shown_value`) can be given back, and is that value; an instant may be given in any zone, and
is in the query's where it does not say. What cannot be a value of the column is refused with the reason.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable
from decimal import Decimal
from math import inf, isfinite, nan
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as pt

from clonos.json_text import parsed_json
from clonos.operators.rows import in_utc, instant, is_zoned, local, make_row

Zone = dt.tzinfo | None
_Read = Callable[[Any, pa.DataType, Zone], Any]

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NOT_FINITE: Final = {"nan": nan, "inf": inf, "infinity": inf, "-inf": -inf, "-infinity": -inf}
_FINER_THAN_SPARK: Final = re.compile(r"[.,][0-9]{7}")
_INTERVAL: Final = re.compile(
    r"(?:INTERVAL\s*')?([+-]?)([0-9]{1,9}) ([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?(?:'\s*DAY TO SECOND)?",
    re.IGNORECASE,
)
"""As Spark writes it, and sinks do."""


def read_text(text: str, kind: pa.DataType, zone: Zone) -> Any:
    """The value of a column that a text stands for. Raises ValueError, or ArithmeticError."""
    values = values_of(text, kind)
    if len(values) != 1:
        raise ValueError(f"{text!r} is a list of {len(values)} values")
    return read_value(values[0], kind, zone)


def values_of(text: str, *kinds: pa.DataType) -> list[Any]:
    """As JSON has them: of columns of these types, and of what is behind them. Raises ValueError."""
    is_one = len(kinds) == 1
    if is_one and _is_nested(kinds[0]):
        return [_parsed(text)]
    try:
        found = _parsed(text)
    except ValueError:
        return [text]
    if isinstance(found, list):
        return found
    if isinstance(found, str):
        return [found]
    is_null = found is None and not (is_one and pt.is_string(kinds[0]))
    return [None if is_null else text]


def read_value(given: Any, kind: pa.DataType, zone: Zone) -> Any:
    """A value as JSON has it, or its text, as `shown_value` takes it: TIMESTAMPs are aware, of UTC. Raises ValueError,
    or ArithmeticError."""
    if given is None:
        return None
    for fits, read in _READERS:
        if fits(kind):
            return read(given, kind, zone)
    raise ValueError(f"it has no value but null: {given!r}")


def example_of(kind: pa.DataType) -> Any:
    """A value of the type, as JSON has it."""
    if pt.is_list(kind):
        return [example_of(kind.value_type)]
    if pt.is_struct(kind):
        return {field.name: example_of(field.type) for field in kind}
    if pt.is_map(kind):
        key = example_of(kind.key_type)
        return {key if isinstance(key, str) else json.dumps(key): example_of(kind.item_type)}
    return next((found for fits, found in _EXAMPLES if fits(kind)), None)


def _is_nested(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_struct(kind) or pt.is_map(kind))


def _parsed(text: str) -> Any:
    try:
        return parsed_json(text, parse_float=Decimal, parse_constant=_refuse)
    except (ValueError, ArithmeticError) as error:
        raise ValueError(f"it is no JSON: {error}") from None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise ValueError(f"{given!r} is no text")
    given.encode()  # what is not UTF-8 is no text of Spark's
    return given


def _read_text(given: Any, kind: pa.DataType, zone: Zone) -> str:
    return _text(given)


def _read_boolean(given: Any, kind: pa.DataType, zone: Zone) -> bool:
    said = str(given).strip().casefold()
    if not isinstance(given, bool | str) or said not in ("true", "false"):
        raise ValueError(f"{given!r} is neither true nor false")
    return said == "true"


def _read_integer(given: Any, kind: pa.DataType, zone: Zone) -> int:
    said = str(given).strip()
    if isinstance(given, bool) or not isinstance(given, int | str) or not _INTEGER.fullmatch(said):
        raise ValueError(f"{given!r} is no integer")
    if not -(limit := 1 << (kind.bit_width - 1)) <= (found := int(said)) < limit:
        raise ValueError(f"{given!r} is out of range")
    return found


def _number(given: Any) -> str:
    said = str(given).strip()
    if isinstance(given, bool) or not isinstance(given, int | Decimal | str) or not _NUMBER.fullmatch(said):
        raise ValueError(f"{given!r} is no number")
    return said


def _read_decimal(given: Any, kind: pa.DataType, zone: Zone) -> Decimal:
    found = Decimal(_number(given))
    if not found:
        return Decimal((0, (0,), -kind.scale))
    if found.adjusted() >= kind.precision - kind.scale:
        raise ValueError(f"{given!r} is out of range")
    sign, digits, exponent = found.as_tuple()
    assert isinstance(exponent, int)
    shift = exponent + kind.scale
    digits, rest = (digits + (0,) * shift, ()) if shift >= 0 else (digits[:shift], digits[shift:])
    if any(rest) or not digits:
        raise ValueError(f"{given!r} {'has more digits behind the point' if kind.scale else 'is no integer'}")
    return Decimal((sign, digits, -kind.scale))


def _read_float(given: Any, kind: pa.DataType, zone: Zone) -> float:
    if (
        isinstance(given, str)
        and (found := _NOT_FINITE.get(given.strip().casefold().lstrip("+"))) is not None
    ):
        return found
    said = pa.scalar(float(_number(given)), pa.float64()).cast(kind, safe=False).as_py()
    if not isfinite(said):
        raise ValueError(f"{given!r} is out of range")
    return float(said)


def _read_date(given: Any, kind: pa.DataType, zone: Zone) -> dt.date:
    return dt.date.fromisoformat(_text(given).strip())


def _moment(given: Any) -> dt.datetime:
    said = _text(given).strip()
    if _FINER_THAN_SPARK.search(said):
        raise ValueError(f"{given!r} is finer than a microsecond")
    return dt.datetime.fromisoformat(said)


def _read_instant(given: Any, kind: pa.DataType, zone: Zone) -> dt.datetime:
    moment = _moment(given)
    at = instant(moment, zone)
    if local(at, zone) != moment and moment.tzinfo is None:
        raise ValueError(f"{given!r} is a time that clocks have passed over there")
    return in_utc(at)


def _read_wall_time(given: Any, kind: pa.DataType, zone: Zone) -> dt.datetime:
    moment = _moment(given)
    if moment.tzinfo is not None:
        raise ValueError(f"{given!r} says in which zone it is, and values of the column are in none")
    return moment


def _read_interval(given: Any, kind: pa.DataType, zone: Zone) -> dt.timedelta:
    found = _INTERVAL.fullmatch(_text(given).strip())
    if found is None:
        raise ValueError(f"{given!r} is no interval")
    sign, days, hours, minutes, seconds, part = found.groups(default="0")
    whole = dt.timedelta(int(days), int(seconds), int(part.ljust(6, "0")), 0, int(minutes), int(hours))
    return -whole if sign == "-" else whole


def _read_binary(given: Any, kind: pa.DataType, zone: Zone) -> bytes:
    if not re.fullmatch(r"([0-9a-fA-F]{2})*", said := _text(given).strip()):
        raise ValueError(f"{given!r} are no bytes as hexadecimal digits")
    return bytes.fromhex(said)


def _read_list(given: Any, kind: pa.DataType, zone: Zone) -> list[Any]:
    if not isinstance(given, list):
        raise ValueError(f"{given!r} is no JSON list")
    return [read_value(each, kind.value_type, zone) for each in given]


def _read_struct(given: Any, kind: pa.DataType, zone: Zone) -> Any:
    names = [field.name for field in kind]
    if not isinstance(given, dict) or given.keys() != set(names):
        raise ValueError(f"{given!r} is no JSON object with the fields {', '.join(names)}")
    return make_row(names, [read_value(given[field.name], field.type, zone) for field in kind])


def _read_map(given: Any, kind: pa.DataType, zone: Zone) -> dict[Any, Any]:
    if not isinstance(given, dict):
        raise ValueError(f"{given!r} is no JSON object")
    return {
        read_value(key, kind.key_type, zone): read_value(item, kind.item_type, zone)
        for key, item in given.items()
    }


_READERS: Final[tuple[tuple[Callable[[pa.DataType], bool], _Read], ...]] = (
    (pt.is_string, _read_text),
    (pt.is_boolean, _read_boolean),
    (pt.is_integer, _read_integer),
    (pt.is_decimal, _read_decimal),
    (pt.is_floating, _read_float),
    (pt.is_date, _read_date),
    (is_zoned, _read_instant),
    (pt.is_timestamp, _read_wall_time),
    (pt.is_duration, _read_interval),
    (pt.is_binary, _read_binary),
    (pt.is_list, _read_list),
    (pt.is_struct, _read_struct),
    (pt.is_map, _read_map),
)
_EXAMPLES: Final[tuple[tuple[Callable[[pa.DataType], bool], Any], ...]] = (
    (pt.is_string, "c-4711"),
    (pt.is_boolean, True),
    (pt.is_integer, 42),
    (lambda kind: pt.is_decimal(kind) and kind.precision - kind.scale < 2, "0"),
    (pt.is_decimal, "42"),
    (pt.is_floating, 0.5),
    (pt.is_date, "2026-11-29"),
    (pt.is_timestamp, "2026-11-29T11:27:00"),
    (pt.is_duration, "INTERVAL '1 02:03:04.000000' DAY TO SECOND"),
    (pt.is_binary, "ff00ab"),
)
