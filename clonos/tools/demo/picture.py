"""One picture of all runs: output over time around the strikes, contradictions marked.

A panel per scenario and mode. A line per system climbs with every input whose output became visible for the
first time; grey is what was given. A dashed line is a strike. Red marks are rows that contradicted or
repeated what had been visible before, at the height that the line had then.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clonos.tools.demo.harness import Outcome
from clonos.tools.demo.verdicts import Result
from clonos.tools.demo.words import MODES, SYSTEMS

__all__ = ["draw"]

_COLOURS = {"native": "#c77700", "clonos": "#00629b"}
_GIVEN = "#c4c4c4"
_WRONG = "#d00000"
_INK = "#333333"


def draw(outcomes: Sequence[Outcome], path: Path) -> None:
    """Draw the outcomes into a PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    scenarios = list(dict.fromkeys(outcome.scenario for outcome in outcomes))
    modes = list(dict.fromkeys(outcome.mode for outcome in outcomes))
    figure, axes = plt.subplots(
        len(scenarios),
        len(modes),
        figsize=(7.2 * len(modes), 3.3 * len(scenarios) + 1.4),
        squeeze=False,
        layout="constrained",
    )
    for i, scenario in enumerate(scenarios):
        for j, mode in enumerate(modes):
            chosen = [o for o in outcomes if (o.scenario, o.mode) == (scenario, mode)]
            if chosen:
                _panel(axes[i][j], chosen)
            else:
                axes[i][j].set_axis_off()
    figure.suptitle("What the outside world saw while parts of the job were killed", color=_INK, fontsize=13)
    named = {
        label: handle
        for row in axes
        for panel in row
        for handle, label in zip(*panel.get_legend_handles_labels())
    }
    figure.legend(
        named.values(), named.keys(), loc="outside lower center", ncols=3, fontsize=9, frameon=False
    )
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _panel(axes: Any, outcomes: Sequence[Outcome]) -> None:
    first = outcomes[0]
    given = sorted(first.appended.values())
    start = given[min(30, len(given) - 1)] if given else 0.0  # the replay begins behind the warm-up
    axes.plot(
        *_climb(given, start), color=_GIVEN, linewidth=5, solid_capstyle="round", label="given", zorder=1
    )
    for outcome in outcomes:
        _system(axes, outcome, start)
    axes.set_title(f"{first.scenario}, {MODES[first.mode]}", loc="left", fontsize=11, color=_INK, pad=18)
    axes.text(0, 1.02, _summary(outcomes), transform=axes.transAxes, fontsize=8.5, color=_INK, va="bottom")
    axes.set_xlabel("seconds", fontsize=9, color=_INK)
    axes.set_ylabel("outputs visible", fontsize=9, color=_INK)
    axes.set_xlim(left=-0.5)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="#eeeeee")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, colors=_INK)


def _system(axes: Any, outcome: Outcome, start: float) -> None:
    colour = _COLOURS[outcome.system]
    height: dict[str, int] = {}
    firsts: list[float] = []
    wrong: list[tuple[float, int]] = []
    for sighting in outcome.sightings:
        if sighting.input_id not in height:
            height[sighting.input_id] = len(height) + 1
            firsts.append(sighting.at)
        if sighting.fault is not None:
            wrong.append((sighting.at - start, height[sighting.input_id]))
    axes.plot(
        *_climb(firsts, start),
        color=colour,
        linewidth=1.8,
        label=SYSTEMS[outcome.system],
        drawstyle="steps-post",
        zorder=3,
    )
    for number, (at, _) in enumerate(outcome.strikes):
        axes.axvline(
            at - start,
            color=colour,
            linestyle=(0, (4, 3)),
            linewidth=1,
            alpha=0.7,
            zorder=2,
            label=f"{SYSTEMS[outcome.system]} struck" if number == 0 else None,
        )
    if wrong:
        axes.plot(
            *zip(*wrong),
            linestyle="none",
            marker="x",
            markersize=4,
            markeredgewidth=1,
            color=_WRONG,
            label="contradicts what was visible before",
            zorder=4,
        )


def _climb(moments: Sequence[float], start: float) -> tuple[list[float], list[int]]:
    return [moment - start for moment in moments], list(range(1, len(moments) + 1))


def _summary(outcomes: Sequence[Outcome]) -> str:
    parts = []
    for outcome in outcomes:
        verdict = outcome.verdict
        wrong = verdict.contradicted + verdict.repeated
        said = outcome.result.value
        if outcome.result is Result.WRONG:
            said = f"{wrong:,} contradicted or repeated, {verdict.missing:,} missing"
        parts.append(f"{SYSTEMS[outcome.system]}: {said}, outage {outcome.outage_ms / 1000:.2f} s")
    return "     ".join(parts)
