"""What the page asks of a query's archive: which rows there were, and why they say what they say.

Rows are found and explained by running the user's functions again, so each question is a process of its own, of the
command that answers it (`clonos archive find`, `clonos explain`), and one at a time.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from clonos.archive.asking import Answer, NotAnswered, ask
from clonos.archive.condition import as_condition
from clonos.archive.masking import WITHOUT_TEXT, Mask
from clonos.archive.reading import ArchivedQuery
from clonos.errors import ClonosError
from clonos.storage.working_folders import working_folder
from clonos.values.readable import moment

FOUND_AT_MOST: Final = 50
LONGEST_SECONDS: Final = 120.0
_OURS: Final = ("ConfigurationError", "StateError", "CheckpointMismatch")
"""Errors whose messages have no value of a row."""
_LOOK_SECONDS: Final = 0.3


class ArchiveQuestions:
    """Of one query. Each answer is a document; what went wrong stands in it as `error`. A question whose asker has gone
    (`is_wanted`) is given up."""

    def __init__(self, location: str, masked: Sequence[str] = ()) -> None:
        """`masked` are columns whose values no answer has."""
        self._location = location
        self._mask = Mask(masked)
        self._turn = threading.Lock()

    def listed(self) -> dict[str, Any]:
        """By operator, how many rows can be asked for, and from when; none where there is no archive. The `note` is
        what readers have to know of the mask."""
        try:
            query = ArchivedQuery(self._location)
            note = self._mask.check(query)
            instances = [each for each in query.instances() if each.segments]
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
        return {"operators": list(operators.values()), "note": note}

    def found(
        self, operator: str, where: Sequence[str], since: str, upto: str, is_wanted: Callable[[], bool]
    ) -> dict[str, Any]:
        """Rows of an operator that had these values (`column=value`), no more than FOUND_AT_MOST; values as text, but
        for null: a browser's numbers have 53 bits. What could not be looked at is said as `lacking`."""
        bounds = [*([f"--from={since}"] if since else []), *([f"--to={upto}"] if upto else [])]
        limits = [f"--limit={FOUND_AT_MOST}", f"--mask={self._mask}", "--json"]
        command = ["archive", "find", f"--operator={operator}", *bounds, *limits, "--", self._location]
        answer = self._ask([*command, *(where or ["all"])], is_wanted)
        if isinstance(answer, dict):
            return answer
        try:
            said: dict[str, Any] = json.loads(answer.text)
        except ValueError:
            return self._failed(answer)
        for each in said["rows"]:
            each["row"] = {name: as_condition(value) for name, value in each["row"].items()}
        return {**said, "limit": FOUND_AT_MOST}

    def explained(self, row: str, is_wanted: Callable[[], bool]) -> dict[str, Any]:
        """A row, as text and as a picture."""
        with working_folder("page") as folder:
            picture = Path(folder, "why.svg")
            command = ["explain", f"--mask={self._mask}", f"--draw={picture}", "--", self._location, row]
            answer = self._ask(command, is_wanted)
            if isinstance(answer, dict):
                return answer
            if not picture.exists():
                return self._failed(answer)
            return {"id": row, "text": answer.text, "picture": picture.read_text("utf-8")}

    def _failed(self, answer: Answer) -> dict[str, Any]:
        kind = answer.complaint.partition(":")[0]
        return {"error": WITHOUT_TEXT if self._mask and kind not in _OURS else answer.complaint}

    def _ask(self, command: Sequence[str], is_wanted: Callable[[], bool]) -> Answer | dict[str, Any]:
        while not self._turn.acquire(timeout=_LOOK_SECONDS):
            if not is_wanted():
                return {"error": "it is not wanted any more"}
        try:
            return ask(command, patience=LONGEST_SECONDS, is_wanted=is_wanted)
        except NotAnswered:
            return {"error": f"it has taken longer than {LONGEST_SECONDS:g} s. Ask for fewer epochs"}
        finally:
            self._turn.release()
