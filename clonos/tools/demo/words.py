"""The verdict on one case in words, for a reader who sees the demo for the first time."""

from __future__ import annotations

from collections.abc import Sequence

from clonos.tools.demo.harness import Outcome
from clonos.tools.demo.job import Mode
from clonos.tools.demo.plan import SCENARIOS
from clonos.tools.demo.verdicts import Result

__all__ = ["MODES", "SYSTEMS", "in_words"]

MODES: dict[Mode, str] = {"microbatch": "micro-batch", "realtime": "Real-Time Mode"}
SYSTEMS = {"native": "Spark alone", "clonos": "Clonos"}


def in_words(outcomes: Sequence[Outcome]) -> str:
    """What was done to both sides, what each one showed, and what follows from that. All of one case."""
    first = outcomes[0]
    lines = [
        f"Each of {first.verdict.inputs:,} flight events is due one row in the output, once and for good.",
        f"What was done, in {MODES[first.mode]}: {SCENARIOS[first.scenario].says}.",
    ]
    for outcome in outcomes:
        lines += [f"{SYSTEMS[outcome.system]}: {_rows(outcome)}.", f"    {_conclusion(outcome)}"]
    return "\n".join(lines)


def _rows(outcome: Outcome) -> str:
    verdict = outcome.verdict
    exact = sum(sighting.fault is None for sighting in outcome.sightings)
    parts = [
        f"{exact:,} of {verdict.outputs:,} rows exact",
        f"{verdict.repeated:,} repeated",
        f"{verdict.contradicted:,} contradicted what had been shown",
        f"{verdict.missing:,} missing",
    ]
    if verdict.broken_chain:
        parts.append(f"{verdict.broken_chain:,} do not follow from any row before")
    if verdict.unknown:
        parts.append(f"{verdict.unknown:,} for events that were never given")
    return ", ".join(parts)


def _conclusion(outcome: Outcome) -> str:
    came, planned = len(outcome.strikes), outcome.planned_strikes
    struck = f"struck {came} of {planned} times"
    if outcome.result is Result.WRONG:
        gave_up = f", and it gave up: {outcome.failure.splitlines()[0]}" if outcome.failure else "."
        return f"Wrong: {struck}{gave_up}"
    if came < planned:
        return f"Inconclusive: {struck}, so that nothing wrong was found says little."
    return f"Exact: {struck}, and the output does not show it."
