"""What `clonos lineage` says of a query."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clonos import cli


def told(
    place: Any, capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0
) -> list[dict[str, Any]]:
    """Derivations, in the order in which they are told; `code` is the exit status."""
    capsys.readouterr()
    assert cli.main(["lineage", str(place.checkpoint), *arguments, "--json"]) == code, capsys.readouterr().err
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]
