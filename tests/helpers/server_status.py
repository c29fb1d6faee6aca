"""The answer of a replica server that is asked how it stands, as it comes over the wire."""

from __future__ import annotations

from typing import Any

from clonos.wire.server_status import ServerStatus


def said(pid: int, **more: Any) -> dict[str, Any]:
    whole = dict.fromkeys(ServerStatus.__required_keys__, None)
    lists = {key: [] for key in ("replicas", "spares", "failures", "recoveries", "recent_deaths")}
    return {**whole, **lists, "waiting": 0, "deaths": 0, "pid": pid, **more}
