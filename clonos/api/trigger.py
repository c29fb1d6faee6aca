"""When a query reads what has come, as `trigger` is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from clonos.errors import QueryDefinitionError
from clonos.spark.types import window_microseconds

_INTERVALS: Final = ("processingTime", "realTime")
_FLAGS: Final = ("availableNow", "once")
_KNOWN: Final = "Give processingTime='10 seconds', realTime='5 minutes', availableNow=True or once=True"


def check_trigger(spark: Any, trigger: Mapping[str, Any]) -> None:
    """Raises QueryDefinitionError where Spark could not make a trigger of it, or has one that is not supported."""
    if len(trigger) != 1:
        raise QueryDefinitionError("give exactly one trigger", hint=_KNOWN)
    ((name, value),) = trigger.items()
    if name == "continuous":
        raise QueryDefinitionError("continuous processing is not supported", hint="Use realTime='5 minutes'")
    if name in _INTERVALS:
        if window_microseconds(spark, value, f"the trigger's {name}") < 0:
            raise QueryDefinitionError(f"the trigger's {name} {value!r} is negative", hint=_KNOWN)
    elif name not in _FLAGS or value is not True:
        raise QueryDefinitionError(f"there is no trigger {name}={value!r}", hint=_KNOWN)
