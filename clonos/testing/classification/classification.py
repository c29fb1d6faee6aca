"""What the experiments have shown of an operator, and what that implies."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final

from clonos.operators.claims import BELIED
from clonos.protocol.recovery.dependence import (
    Dependence,
    Determinism,
    Sensitivity,
    Service,
)
from clonos.protocol.recovery.sufficient import Recovery, Visibility, cheapest
from clonos.testing.classification.counterexample import Counterexample

ORDER_WORDS: Final = {
    Sensitivity.INSENSITIVE: "order_insensitive",
    Sensitivity.CONVERGENT: "convergent",
    Sensitivity.DIVERGENT: "divergent",
}
_RECOVERY_WORDS: Final = {
    Recovery.EPOCH_AGAIN: "spark",
    Recovery.BATCH: "batch",
    Recovery.COORDINATED: "coordinated",
    Recovery.CAUSAL: "causal",
    Recovery.EAGER: "eager",
    None: "none",
}


class Requirement(enum.Enum):
    """What an operator can be required to be."""

    DETERMINISTIC = "deterministic"
    RECORDED = "recorded"
    ORDER_INSENSITIVE = "order_insensitive"
    CONVERGENT = "convergent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Classification:
    """Of one operator. It is what was found in so many runs, and no proof: an operator of which no difference was found
    may have one that these inputs do not show.

    `order`, `bundles` and `sequences_same` are None where the operator differs between equal runs already. The last one
    says whether the rows of each key came in the same order, whatever the order of the records. `raised` is what ended
    runs of which nothing is known besides.
    """

    name: str
    runs: int
    seed: int
    raised: tuple[str, ...]
    services: frozenset[Service]
    determinism: Determinism
    order: Sensitivity | None
    bundles: Sensitivity | None
    sequences_same: bool | None
    replay_example: Counterexample | None = None
    order_example: Counterexample | None = None
    bundles_example: Counterexample | None = None
    claimed: Determinism = Determinism.RECORDED
    """What its functions say of themselves."""

    @property
    def belies_claim(self) -> bool:
        """Whether the operator was found to depend on more than its functions claim."""
        if self.claimed is not Determinism.DETERMINISTIC:
            return False
        return self.determinism is not self.claimed or any(BELIED in raised for raised in self.raised)

    @property
    def boundary_sensitive(self) -> bool | None:
        """Whether other bundles of the same records in the same order give other rows."""
        return None if self.bundles is None else self.bundles is not Sensitivity.INSENSITIVE

    @property
    def dependence(self) -> Dependence:
        return Dependence(
            determinism=self.determinism,
            services=self.services,
            order=Sensitivity.DIVERGENT if self.order is None else self.order,
            bundles=Sensitivity.DIVERGENT if self.bundles is None else self.bundles,
        )

    @property
    def examples(self) -> tuple[Counterexample, ...]:
        found = (self.replay_example, self.order_example, self.bundles_example)
        return tuple([example for example in found if example is not None])

    def recovery(self, visibility: Visibility) -> Recovery | None:
        """The cheapest recovery that suffices; None where none does."""
        return cheapest(self.dependence, visibility)

    def meets(self, requirement: Requirement) -> bool:
        match requirement:
            case Requirement.DETERMINISTIC:
                return self.determinism is Determinism.DETERMINISTIC
            case Requirement.RECORDED:
                return self.determinism is not Determinism.HIDDEN
            case Requirement.ORDER_INSENSITIVE:
                return self.order is Sensitivity.INSENSITIVE
            case Requirement.CONVERGENT:
                return self.order is not None and self.order <= Sensitivity.CONVERGENT

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "operator": self.name,
            "runs": self.runs,
            "seed": self.seed,
            "raised": list(self.raised),
            "determinism": self.determinism.value,
            "claimed": self.claimed.value,
            "services": sorted(service.value for service in self.services),
            "order": None if self.order is None else ORDER_WORDS[self.order],
            "sequences_same": self.sequences_same,
            "boundary_sensitive": self.boundary_sensitive,
            "suffices": {
                visibility.value: _RECOVERY_WORDS[self.recovery(visibility)] for visibility in Visibility
            },
            "examples": [example.as_json() for example in self.examples],
        }
