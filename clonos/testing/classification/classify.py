"""The question as users put it: what does this operator depend on?"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from random import Random
from typing import Any, Final

from clonos.api.streams import CausalStream
from clonos.errors import ConfigurationError, QueryDefinitionError, UserFunctionError
from clonos.protocol.recovery.dependence import NONDETERMINISTIC, Determinism, Sensitivity
from clonos.testing.classification.classification import Classification
from clonos.testing.classification.counterexample import Between, Counterexample
from clonos.testing.classification.experiments import Experiments
from clonos.testing.classification.laboratory import Laboratory
from clonos.testing.classification.trials import Trials
from clonos.testing.driver.operator_driver import claims_of, node_of
from clonos_standby.cluster.spec import NodeSpec

RUNS: Final = 50


def classify(
    operator: CausalStream,
    rows: Iterable[Any] | None = None,
    *,
    runs: int = RUNS,
    seed: int = 0,
    channel: str | None = None,
    performs_effects: bool = False,
    laboratory: Laboratory | None = None,
) -> Classification:
    """Find out by experiment what an operator depends on: one that is defined on a `stream(...)`, as for a driver.

    `rows` are records as `OperatorDriver.feed` takes them; without them they are generated. Each of the `runs` takes a
    few of them, which come by two channels at random, or by the one that the column `channel` says. The operator runs
    in processes of its own, some thousand times: `ctx.call` asks what it asks, and `ctx.effect` carries nothing out and
    answers None, unless `performs_effects`. `laboratory` is one that is used for several operators, each of which would
    start its own otherwise; it also says how long one run may take.

    Raises QueryDefinitionError where that is not one operator with one input, or cannot be pickled, and
    UserFunctionError where the function raises in every run.
    """
    if runs < 1:
        raise ConfigurationError(f"{runs} runs show nothing", hint="Give at least 1")
    node, _ = node_of(operator)
    if node.right is not None:
        raise QueryDefinitionError(
            f"the operator {node.name!r} has two inputs, and one is examined",
            hint="Classify each of its functions as that of a groupBy(...).process(...)",
        )
    names = node.input.names
    given = None if rows is None else [_in_columns(row, names) for row in rows]
    trials = Trials(node.input, node.key, given, channel)
    choices = Random(f"{seed}/classification")
    with nullcontext(laboratory) if laboratory is not None else Laboratory() as used:
        used.load(operator, node.name, [names[at] for at in node.key], performs_effects=performs_effects)
        experiments = Experiments(used, names)
        for _ in range(runs):
            experiments.examine(trials.draw(choices), choices)
        experiments.repeat_elsewhere()
    return replace(_classified(node, experiments, runs, seed), claimed=claims_of(operator))


def _in_columns(row: Any, names: list[str]) -> tuple[Any, ...]:
    """A record by position. Raises ConfigurationError where it lacks a column."""
    if not isinstance(row, dict) and not hasattr(row, "asDict"):
        return tuple(row)
    named = row if isinstance(row, dict) else row.asDict()
    missing = [name for name in names if name not in named]
    if missing:
        raise ConfigurationError(f"the row {row!r} has no {missing[0]!r}", hint="A null is None")
    return tuple([named[name] for name in names])


def _classified(node: NodeSpec, experiments: Experiments, runs: int, seed: int) -> Classification:
    if experiments.raised and not experiments.got_through:
        trial, raised = experiments.raised[0]
        raise UserFunctionError(
            f"the function of {node.name!r} raised in all {runs} runs; with the rows {list(trial.rows)!r}: {raised}",
            hint="Give rows that it takes: rows=..., or --input on the command line",
        )
    if experiments.replay is not None:
        determinism = Determinism.HIDDEN
    elif experiments.services & NONDETERMINISTIC:
        determinism = Determinism.RECORDED
    else:
        determinism = Determinism.DETERMINISTIC
    return Classification(
        name=node.name,
        runs=runs,
        seed=seed,
        raised=tuple([raised for _, raised in experiments.raised]),
        services=experiments.services,
        determinism=determinism,
        order=_sensitivity(experiments, Between.ORDER),
        bundles=_sensitivity(experiments, Between.BUNDLES),
        sequences_same=None if experiments.is_hidden else experiments.sequences_same,
        replay_example=experiments.replay,
        order_example=_example(experiments, Between.ORDER),
        bundles_example=_example(experiments, Between.BUNDLES),
    )


def _sensitivity(experiments: Experiments, between: Between) -> Sensitivity | None:
    if experiments.is_hidden:
        return None
    return experiments.found[between][0] if between in experiments.found else Sensitivity.INSENSITIVE


def _example(experiments: Experiments, between: Between) -> Counterexample | None:
    if experiments.is_hidden or between not in experiments.found:
        return None
    return experiments.found[between][1]
