"""What the page asks of a query's archive: which rows there were, and why they say what they say.

Rows are found and explained by running the user's functions again, so each question is a process of its own, of the
command that answers it (`clonos archive find`, `clonos explain`), and one at a time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any, Final

from clonos.archive.drawing import draw
from clonos.archive.masking import mask, masked_row
from clonos.archive.reading import ArchivedQuery
from clonos.errors import ClonosError
from clonos.tools.explain import lines
from clonos.values.readable import moment

FOUND_AT_MOST: Final = 50
LONGEST_SECONDS: Final = 120.0


class ArchiveQuestions:
    """Of one query. Each answer is a document; what went wrong stands in it as `error`."""

    def __init__(self, location: str, masked: Sequence[str] = ()) -> None:
        """`masked` are columns whose values no answer has."""
        self._location = location
        self._mask = frozenset(masked)
        self._turn = threading.Lock()

    def listed(self) -> dict[str, Any]:
        """By operator, how many rows can be asked for, and from when; none where there is no archive."""
        try:
            instances = [each for each in ArchivedQuery(self._location).instances() if each.segments]
        except ClonosError as error:
            return {"error": error.message, "operators": []}
        operators: dict[str, dict[str, Any]] = {}
        for each in instances:
            times = [name.written_at for name in each.segments]
            said = operators.setdefault(
                each.operator, {"name": each.operator, "epochs": [], "times": [], "bytes": 0}
            )
            said["epochs"] += [min(each.epochs), max(each.epochs)]
            said["times"] += [min(times), max(times)]
            said["bytes"] += each.bytes
        for said in operators.values():
            said["epochs"] = [min(said["epochs"]), max(said["epochs"])]
            said["times"] = [moment(min(said["times"])), moment(max(said["times"]))]
        return {"operators": list(operators.values())}

    def found(self, operator: str, where: Sequence[str], since: str, upto: str) -> dict[str, Any]:
        """Rows of an operator that had these values (`column=value`), no more than FOUND_AT_MOST; values as text."""
        if hidden := sorted(self._mask & {text.partition("=")[0].strip() for text in where}):
            return {"error": f"values of {', '.join(hidden)} are not shown, nor looked for"}
        bounds = [*(["--from", since] if since else []), *(["--to", upto] if upto else [])]
        limit = f"--limit={FOUND_AT_MOST}"
        said = self._ask(
            "archive",
            "find",
            f"--operator={operator}",
            *bounds,
            limit,
            "--json",
            "--",
            self._location,
            *where,
        )
        if isinstance(said, dict):
            return said
        for each in said:
            each["row"] = {
                name: _as_text(value) for name, value in masked_row(each["row"], self._mask).items()
            }
        return {"rows": said, "limit": FOUND_AT_MOST}

    def explained(self, row: str) -> dict[str, Any]:
        """A row, as text and as a picture."""
        said = self._ask("explain", "--json", "--", self._location, row)
        if "id" not in said:
            return dict(said)
        if self._mask:
            mask(said, self._mask)
        return {"id": said["id"], "text": "\n".join(lines(said)), "picture": draw(said)}

    def _ask(self, *arguments: str) -> Any:
        """What a command answers as JSON, or why it does not."""
        command = [sys.executable, "-m", "clonos.cli", *arguments]
        with self._turn:
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False
                )
            except subprocess.TimeoutExpired:
                return {"error": f"it has taken longer than {LONGEST_SECONDS:g} s. Ask for fewer epochs"}
        try:
            return json.loads(done.stdout)
        except ValueError:
            said = done.stderr.strip().splitlines() or ["nothing was answered"]
            return {"error": said[-1].removeprefix("clonos: ")}


def _as_text(value: Any) -> str:
    """A browser's numbers have 53 bits."""
    return value if isinstance(value, str) else json.dumps(value)
