"""What every store of keyed state promises, as checks to run against implementations of `KeyedStatePort`.

    @pytest.mark.parametrize("check", STATE_CHECKS, ids=check_name)
    def test_my_state(check):
        check(StatePlace(make=MyState, restored=lambda state: MyState.from_snapshot(state.snapshot())))

A check raises AssertionError, with a text, where the promise is broken.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from clonos.protocol.operator import KeyedStatePort
from clonos.testing.conformance.checks import check_name, same

__all__ = ["STATE_CHECKS", "StatePlace", "check_name"]

KEYS = (b"", b"a", b"a\x00", b"a\xff", b"ab", b"b", b"\x00", b"\xfe", b"\xff", b"\xff\xff")
STEPS = 600


@dataclass(frozen=True, slots=True)
class StatePlace:
    """`make` gives empty state. `restored` gives what a replacement begins with: the state as it is at that moment, as
    a snapshot brings it back. The state from which it was taken is not used any more."""

    make: Callable[[], KeyedStatePort]
    restored: Callable[[KeyedStatePort], KeyedStatePort]


def what_is_kept_is_found_and_what_is_deleted_is_not(place: StatePlace) -> None:
    state = place.make()
    same("what is under a key at first", (state.load(b"k"), state.get(b"own")), (None, None))
    state.delete(b"k")
    state.save(b"k", {"n": 1})
    state.put(b"own", [1])
    same("what is kept", (state.load(b"k"), state.get(b"own")), ({"n": 1}, [1]))
    state.save(b"k", {"n": 2})
    same("what is kept later", state.load(b"k"), {"n": 2})
    state.delete(b"k")
    state.put(b"own", None)
    same("what is deleted", (state.load(b"k"), state.get(b"own")), (None, None))
    same("what is there", list(state.scan(b"")), [])


def what_a_user_saves_is_a_copy(place: StatePlace) -> None:
    """Later changes of the object show no more than they would after a restore, and what is loaded is the caller's."""
    state, given = place.make(), {"seen": [1]}
    state.save(b"k", given)
    given["seen"].append(2)
    same("what is kept", state.load(b"k"), {"seen": [1]})
    loaded = state.load(b"k")
    assert loaded is not None
    loaded["seen"].append(3)
    same("what is kept when what was loaded changes", state.load(b"k"), {"seen": [1]})


def an_object_that_was_changed_in_place_is_kept_once_it_is_touched(place: StatePlace) -> None:
    state = place.make()
    state.put(b"k", [1])
    kept = state.get(b"k")
    assert kept is not None
    kept.append(2)
    state.touch(b"k")
    same("what is kept", state.get(b"k"), [1, 2])
    same("what is restored", place.restored(state).get(b"k"), [1, 2])


def a_scan_shows_keys_in_order_and_only_those_that_begin_so(place: StatePlace) -> None:
    state = place.make()
    for key in Random(1).sample(KEYS, len(KEYS)):
        state.save(key, list(key))
    for prefix in (b"", b"a", b"a\x00", b"\xff", b"nothing"):
        due = [(key, list(key)) for key in sorted(KEYS) if key.startswith(prefix)]
        same(f"what begins with {prefix!r}", list(state.scan(prefix)), due)


def a_restored_state_is_the_one_that_was_there(place: StatePlace) -> None:
    state = place.make()
    for number in range(300):
        state.save(b"%d" % number, {"n": number, "text": "x" * (number % 7)})
    for number in range(0, 300, 3):
        state.delete(b"%d" % number)
    due = {b"%d" % n: {"n": n, "text": "x" * (n % 7)} for n in range(300) if n % 3}
    state = place.restored(place.restored(state))
    same("the restored state", dict(state.scan(b"")), due)
    same("a key of it", state.load(b"4"), due[b"4"])
    same("a key that was deleted", state.load(b"3"), None)


def any_run_is_as_with_a_dictionary(place: StatePlace) -> None:
    """A long run of random steps, restored now and then."""
    dice, state, model = Random(2), place.make(), dict[bytes, Any]()
    for step in range(STEPS):
        key, action = dice.choice(KEYS), dice.random()
        if action < 0.35:
            value = [dice.randrange(9) for _ in range(dice.randrange(4))]
            state.save(key, copy.copy(value))
            model[key] = value
        elif action < 0.5:
            state.delete(key)
            model.pop(key, None)
        elif action < 0.8:
            same(f"what is under {key!r}, step {step}", state.load(key), model.get(key))
        elif action < 0.98:
            due = sorted((name, value) for name, value in model.items() if name.startswith(key[:1]))
            same(f"what begins with {key[:1]!r}, step {step}", list(state.scan(key[:1])), due)
        else:
            state = place.restored(state)


STATE_CHECKS: tuple[Callable[[StatePlace], None], ...] = (
    what_is_kept_is_found_and_what_is_deleted_is_not,
    what_a_user_saves_is_a_copy,
    an_object_that_was_changed_in_place_is_kept_once_it_is_touched,
    a_scan_shows_keys_in_order_and_only_those_that_begin_so,
    a_restored_state_is_the_one_that_was_there,
    any_run_is_as_with_a_dictionary,
)
"""What keyed state promises."""
