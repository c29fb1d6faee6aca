"""A classification as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from clonos.protocol.recovery.dependence import Determinism, Sensitivity
from clonos.protocol.recovery.sufficient import Recovery, Visibility
from clonos.testing.classification.classification import ORDER_WORDS, Classification
from clonos.testing.classification.counterexample import Between, Counterexample, Side
from clonos.testing.classification.laboratory import Place

_NOT_EXAMINED: Final = "not examined: two equal runs differ already"
_NO_DIFFERENCE: Final = "no difference found"
_SENSITIVITY: Final = {
    Sensitivity.INSENSITIVE: "the same rows, and the same state",
    Sensitivity.CONVERGENT: "other rows on the way, then the same state and the same last row of each key",
    Sensitivity.DIVERGENT: "another state, or another last row of a key",
}
_RUNS: Final = {Between.ORDER: "in two orders", Between.BUNDLES: "in two ways of bundling"}


def lines_of(found: Classification) -> Iterator[str]:
    yield f"{found.name}: {found.runs} runs, seed {found.seed}. What is not found may be there all the same."
    if found.raised:
        yield f"  In {len(found.raised)} of the runs the function raised, first: {found.raised[0]}"
    services = ", ".join(sorted(service.value for service in found.services))
    for what, said in (
        ("services", services or "none"),
        ("replay", _replay(found)),
        ("order", _order(found)),
        ("bundles", _bundles(found)),
        ("recovery", _recovery(found)),
    ):
        yield f"  {what:<10}{said}"
    for example in found.examples:
        yield ""
        yield from _example(example)
    if found.determinism is Determinism.HIDDEN:
        yield ""
        yield from _advice(found)


def _replay(found: Classification) -> str:
    if found.determinism is Determinism.HIDDEN:
        example = found.replay_example
        place = "" if example is None or example.place is None else f" in {example.place.value}"
        return f"hidden nondeterminism: a replay{place} differs"
    if found.determinism is Determinism.RECORDED:
        return f"{_NO_DIFFERENCE}: nondeterministic, and recorded"
    return f"{_NO_DIFFERENCE}: deterministic"


_LATER: Final = "batch where rows may be seen with their epoch, and in real time coordinated with their round"


def _order(found: Classification) -> str:
    if found.order is None:
        return _NOT_EXAMINED
    if found.order is Sensitivity.INSENSITIVE:
        sequence = "" if found.sequences_same else "; rows of a key come in the order of its records"
        return f"{_NO_DIFFERENCE}: {ORDER_WORDS[found.order]}{sequence}"
    return f"{ORDER_WORDS[found.order]}: {_SENSITIVITY[found.order]}"


def _bundles(found: Classification) -> str:
    if found.bundles is None:
        return _NOT_EXAMINED
    if not found.boundary_sensitive:
        return _NO_DIFFERENCE
    return f"boundary-sensitive: {_SENSITIVITY[found.bundles]}"


def _recovery(found: Classification) -> str:
    at_once, with_epoch = found.recovery(Visibility.AT_ONCE), found.recovery(Visibility.WITH_EPOCH)
    if at_once is None:
        return "none repeats it exactly; see below"
    if at_once is Recovery.EAGER:
        return f"eager checkpoints, or {_LATER}; none repeats it exactly"
    if at_once is Recovery.EPOCH_AGAIN:
        return "Spark's own gives the same rows, once where the sink knows a row that comes again"
    if with_epoch is Recovery.EPOCH_AGAIN:
        return (
            "Spark's own ends the same in micro-batch, where a sink takes an epoch's rows in one step; "
            "otherwise it needs causal logging"
        )
    return f"causal logging, or {_LATER}" if with_epoch is Recovery.BATCH else "needs causal logging"


def _example(example: Counterexample) -> Iterator[str]:
    records = "1 record" if example.records == 1 else f"{example.records} records"
    if example.second is None:
        yield f"{records}, recorded and repeated:"
        yield from _run(example.first)
        yield f"  {example.what}"
        return
    yield f"{records}, {_RUNS[example.between]}:"
    yield from _run(example.first)
    yield from _run(example.second)
    yield f"  what differs is {example.what}"


def _run(side: Side) -> Iterator[str]:
    given = " ".join([_bundle(bundle) for bundle in side.bundles])
    came = ", ".join(side.rows) or "no rows"
    state = "; ".join([f"{key}: {value}" for key, value in side.states.items()])
    yield f"  {given}"
    yield f"    gives {side.raised or came}" + (f"; state {state}" if state else "")


def _bundle(records: tuple[str, ...]) -> str:
    return records[0] if len(records) == 1 else f"[{' '.join(records)}]"


def _advice(found: Classification) -> Iterator[str]:
    example = found.replay_example
    if example is not None and example.place is Place.OTHER_HASH_SEED:
        yield "The function depends on the order of a set, or on hash(): go through sorted(...) instead."
        yield "Replicas have one hash seed in common, so a query repeats it as long as its Python stays the same."
        return
    yield "Ask ctx for what is not in the records: ctx.now() for the clock, ctx.random and ctx.uuid4() for"
    yield "random values, ctx.call(fn, ...) for a service. Keep in ctx.state what lasts, not in global variables."
