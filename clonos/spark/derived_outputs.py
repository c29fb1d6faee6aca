"""What of an operator is read through expressions, as its replicas and the checkpoint are told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from clonos.errors import QueryDefinitionError
from clonos.operators.derived_outputs import DerivedOutput, DerivedOutputs
from clonos.operators.types import arrow_schema
from clonos.protocol.side_output import MAIN, OutputName
from clonos.protocol.topology import DerivedInput
from clonos.spark import facts
from clonos.spark.plan import DerivedPlan, OperatorPlan, SinkPlan, Upstream, base_output, output_read


class DerivedOf:
    """Of one operator, by all that is read of it."""

    def __init__(self, node: OperatorPlan, name: str, read: Sequence[Upstream]) -> None:
        self._node = node
        self._name = name
        self._wanted = frozenset(map(output_read, read))
        found = {up.output: up for up in read if isinstance(up, DerivedPlan)}
        self._plans = dict(sorted(found.items()))

    def check_zone(self, zone: str) -> None:
        """Raises QueryDefinitionError where the session's time zone has changed since an expression was given."""
        for plan in self._plans.values():
            if plan.derivation.zone != zone:
                raise QueryDefinitionError(
                    f"{'; '.join(plan.derivation.said)} behind {self._name!r} was said in the time zone "
                    f"{plan.derivation.zone}, and the session's is {zone} now",
                    hint="Set spark.sql.session.timeZone before the query is defined",
                )

    @property
    def schemas(self) -> dict[OutputName, pa.Schema]:
        return {output: arrow_schema(plan.schema) for output, plan in self._plans.items()}

    def around(self, make: Callable[[], Any]) -> Callable[[], Any]:
        """What makes the operator, made to give them, too."""
        if not self._plans:
            return make
        sides = {OutputName(side): arrow_schema(schema) for side, schema in self._node.side_outputs.items()}
        outputs = {MAIN: arrow_schema(self._node.schema), **sides}
        derived = {
            output: DerivedOutput(plan.source, plan.derivation) for output, plan in self._plans.items()
        }
        return DerivedOutputs(self._name, outputs, derived, self._wanted).around(make)


def derived_inputs(
    node: OperatorPlan | SinkPlan, number_of: Callable[[Upstream], int]
) -> dict[int, DerivedInput]:
    """What a node reads through expressions, by the number of the operator before it."""
    return {
        number_of(up): DerivedInput(
            "; ".join(up.derivation.said), up.derivation.digest, facts.columns(up.schema)
        )
        for up in node.all_upstream
        if isinstance(up, DerivedPlan)
    }


def output_said(upstream: Upstream) -> str:
    """Which output is read, in words."""
    base = base_output(upstream)
    said = "main output" if base == MAIN else f"side output {base!r}"
    through = f" through {'; '.join(upstream.derivation.said)}" if isinstance(upstream, DerivedPlan) else ""
    return said + through
