"""Exact recovery for nondeterministic streaming programs on Spark.

Importing this package starts nothing and loads nothing heavy; names are looked up when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clonos.api.connected import connect
    from clonos.api.streams import causal
    from clonos.archive.lineage_frame import lineage
    from clonos.archive.state_frame import state_at
    from clonos.environment import jar_path
    from clonos.operators.calls import Calls
    from clonos.operators.claims import claim
    from clonos.operators.current import current
    from clonos.spark.session import configure

__all__ = ["Calls", "causal", "claim", "configure", "connect", "current", "jar_path", "lineage", "state_at"]

_HOMES = {
    "Calls": "clonos.operators.calls",
    "causal": "clonos.api.streams",
    "claim": "clonos.operators.claims",
    "configure": "clonos.spark.session",
    "connect": "clonos.api.connected",
    "current": "clonos.operators.current",
    "jar_path": "clonos.environment",
    "lineage": "clonos.archive.lineage_frame",
    "state_at": "clonos.archive.state_frame",
}
_MODULES = ("errors", "sinks", "testing")


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _MODULES:
        return import_module(f"clonos.{name}")
    raise AttributeError(f"module 'clonos' has no attribute {name!r}")
