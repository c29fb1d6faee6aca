"""Which recovery suffices for what an operator depends on: what the field says of each, and laws over all of them."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, strategies as st

from clonos.protocol.recovery.dependence import Dependence, Determinism, Sensitivity, Service
from clonos.protocol.recovery.sufficient import OFFERED, Recovery, Visibility, cheapest, suffices

DEPENDENCES = st.builds(
    Dependence,
    determinism=st.sampled_from(Determinism),
    services=st.frozensets(st.sampled_from(Service)),
    order=st.sampled_from(Sensitivity),
    bundles=st.sampled_from(Sensitivity),
)
VISIBILITIES = st.sampled_from(Visibility)
AT_ONCE, WITH_EPOCH = Visibility.AT_ONCE, Visibility.WITH_EPOCH


def deterministic(order: Sensitivity, bundles: Sensitivity = Sensitivity.INSENSITIVE) -> Dependence:
    return Dependence(determinism=Determinism.DETERMINISTIC, order=order, bundles=bundles)


@pytest.mark.parametrize(
    ("dependence", "with_epoch", "at_once"),
    [
        (deterministic(Sensitivity.INSENSITIVE), Recovery.EPOCH_AGAIN, Recovery.EPOCH_AGAIN),
        (deterministic(Sensitivity.CONVERGENT), Recovery.EPOCH_AGAIN, Recovery.CAUSAL),
        (deterministic(Sensitivity.DIVERGENT), Recovery.BATCH, Recovery.CAUSAL),
        (
            deterministic(Sensitivity.INSENSITIVE, Sensitivity.DIVERGENT),
            Recovery.BATCH,
            Recovery.CAUSAL,
        ),
        (
            Dependence(
                determinism=Determinism.RECORDED,
                order=Sensitivity.INSENSITIVE,
                bundles=Sensitivity.INSENSITIVE,
            ),
            Recovery.BATCH,
            Recovery.CAUSAL,
        ),
        (Dependence(determinism=Determinism.HIDDEN), Recovery.BATCH, Recovery.EAGER),
        (
            Dependence(determinism=Determinism.HIDDEN, services=frozenset({Service.EFFECT})),
            None,
            None,
        ),
    ],
)
def test_the_cheapest_of_those_offered(
    dependence: Dependence, with_epoch: Recovery | None, at_once: Recovery | None
) -> None:
    assert (cheapest(dependence, WITH_EPOCH), cheapest(dependence, AT_ONCE)) == (with_epoch, at_once)


@given(DEPENDENCES)
def test_rows_that_are_seen_with_their_epoch_need_no_more(dependence: Dependence) -> None:
    for recovery in Recovery:
        assert suffices(recovery, dependence, WITH_EPOCH) >= suffices(recovery, dependence, AT_ONCE)


@given(DEPENDENCES, VISIBILITIES)
def test_what_suffices_for_more_suffices_for_less(dependence: Dependence, visibility: Visibility) -> None:
    """An operator that depends on less needs no other recovery."""
    for order, bundles in product(Sensitivity, Sensitivity):
        if order > dependence.order or bundles > dependence.bundles:
            continue
        less = Dependence(
            determinism=dependence.determinism, services=dependence.services, order=order, bundles=bundles
        )
        for recovery in Recovery:
            assert suffices(recovery, less, visibility) >= suffices(recovery, dependence, visibility)


@given(DEPENDENCES, VISIBILITIES, st.frozensets(st.sampled_from(Recovery)))
def test_the_cheapest_suffices_and_none_below_it(
    dependence: Dependence, visibility: Visibility, among: frozenset[Recovery]
) -> None:
    found = cheapest(dependence, visibility, among)
    sufficient = {each for each in among if suffices(each, dependence, visibility)}
    assert (found in sufficient and found == min(sufficient)) if sufficient else found is None


@given(DEPENDENCES, VISIBILITIES)
def test_what_is_recorded_is_repeated_by_causal_logging_and_what_is_not_must_not_leave(
    dependence: Dependence, visibility: Visibility
) -> None:
    if dependence.determinism is Determinism.HIDDEN:
        assert cheapest(dependence, AT_ONCE) is (None if dependence.has_effects else Recovery.EAGER)
        assert cheapest(dependence, WITH_EPOCH) in (Recovery.BATCH, None)
    else:
        assert suffices(Recovery.CAUSAL, dependence, visibility)
    if dependence.has_effects or dependence.determinism is not Determinism.DETERMINISTIC:
        at_once = {each for each in Recovery if suffices(each, dependence, AT_ONCE)}
        assert at_once <= {Recovery.CAUSAL, Recovery.EAGER}
        assert Recovery.EAGER not in at_once or not dependence.has_effects


def test_an_undone_round_may_differ_in_everything_but_effects() -> None:
    hidden = Dependence(determinism=Determinism.HIDDEN)
    told = Dependence(determinism=Determinism.HIDDEN, services=frozenset({Service.EFFECT}))
    assert cheapest(hidden, WITH_EPOCH, frozenset(Recovery)) is Recovery.BATCH
    assert cheapest(told, WITH_EPOCH, frozenset(Recovery)) is None


def test_what_is_not_examined_counts_as_divergent() -> None:
    unknown = Dependence(determinism=Determinism.DETERMINISTIC)
    assert unknown.on_arrival is Sensitivity.DIVERGENT
    assert cheapest(unknown, WITH_EPOCH, OFFERED) is Recovery.BATCH
    assert cheapest(unknown, AT_ONCE, OFFERED) is Recovery.CAUSAL
