"""What a `clonos.sinks.store.Store` promises, as checks to run against one of your own.

    @pytest.mark.parametrize("check", STORE_CHECKS, ids=check_name)
    def test_my_store(check, place):
        check(place)

They are for a sink that is made of `StoreSink`, and take the `SinkPlace` of `clonos.testing.conformance.sinks`, which
must be new for each check. What they cannot do is to kill a process in the middle of a step: test that besides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from clonos.sinks.patience import Patience
from clonos.sinks.store import Store, StoreSink
from clonos.sinks.store_connection import StoreConnection
from clonos.testing.conformance.checks import check_name, same
from clonos.testing.conformance.sinks import SinkPlace, rows as due_rows

__all__ = ["STORE_CHECKS", "check_name"]

WRITERS, STEPS = 4, 25
ANY_BYTES = bytes(range(256))


@contextmanager
def connected(place: SinkPlace) -> Iterator[Store]:
    store = sink_of(place).connect()
    try:
        yield store
    finally:
        store.close()


def sink_of(place: SinkPlace) -> StoreSink:
    sink = place.sink()
    if not isinstance(sink, StoreSink):
        raise AssertionError(f"{sink!r} is not made of StoreSink: these checks are not for it")
    return sink


def row(number: int) -> tuple[list[tuple[object, ...]], list[str]]:
    """One row and its id."""
    return [(f"card{number % 7}", number)], [f"query-1/3-0-{number}"]


def a_step_is_there_for_every_connection(place: SinkPlace) -> None:
    """Whatever bytes a value has; an empty one is not the same as none."""
    with connected(place) as one, connected(place) as other:
        same("a record that was never written", other.get("q/a"), None)
        changes: dict[str, bytes | None] = {"q/a": ANY_BYTES, "q/empty": b""}
        same("a step as expected", one.step({"q/a": None}, changes, *row(1)), True)
        same("a value of all bytes", other.get("q/a"), ANY_BYTES)
        same("an empty value", other.get("q/empty"), b"")
        same("what is visible", place.shown(), due_rows(1, 1))
        same("a step that expects the empty value", other.step({"q/empty": b""}, {"q/a": b"2"}, [], []), True)
        same("a value that was written again", one.get("q/a"), b"2")


def a_step_that_is_not_as_expected_changes_nothing(place: SinkPlace) -> None:
    with connected(place) as store:
        store.step({}, {"q/a": b"1", "q/b": b"1"}, [], [])
        wrong: dict[str, dict[str, bytes | None]] = {
            "another value": {"q/a": b"2"},
            "no value where there is one": {"q/a": None},
            "a value where there is none": {"q/c": b"1"},
            "an empty value where there is none": {"q/c": b""},
            "a right and a wrong one": {"q/a": b"1", "q/b": b"2"},
            "a wrong and a right one": {"q/a": b"2", "q/b": b"1"},
        }
        for what, expected in wrong.items():
            changes: dict[str, bytes | None] = {"q/a": None, "q/b": b"3", "q/c": b"3"}
            same(f"a step that expects {what}", store.step(expected, changes, *row(1)), False)
            found = [store.get(key) for key in ("q/a", "q/b", "q/c")]
            same(f"the records after a step that expects {what}", found, [b"1", b"1", None])
            same(f"what is visible after a step that expects {what}", place.shown(), [])


def a_record_is_removed(place: SinkPlace) -> None:
    with connected(place) as store:
        store.step({}, {"q/a": b"1", "q/b": b"1"}, [], [])
        same("a step that removes", store.step({}, {"q/a": None, "q/never": None}, [], []), True)
        same("a record that was removed", store.get("q/a"), None)
        same("what is left", store.scan("q/", "q/~", 9), [("q/b", b"1")])
        same("a step that expects it to be gone", store.step({"q/a": None}, {"q/a": b"2"}, [], []), True)


def a_scan_gives_what_lies_between_in_order(place: SinkPlace) -> None:
    keys = [f"q/log/5-0/{number:020d}" for number in (1, 2, 9, 10, 100)]
    others = ["q/floor", "q/log", "q/log/", "q/log/~", "q/position/5-0", "p/log/1", "q2/log/1", "q%2F/log/1"]
    with connected(place) as store:
        for key in [*reversed(keys), *others]:
            store.step({}, {key: key.encode()}, [], [])
        everything = [(key, key.encode()) for key in keys]
        same("all between two keys", store.scan("q/log/", "q/log/~", 99), everything)
        same("the first two", store.scan("q/log/", "q/log/~", 2), everything[:2])
        same("the next two", store.scan(keys[1], "q/log/~", 2), everything[2:4])
        same("what is behind the last one", store.scan(keys[-1], "q/log/~", 2), [])


def of_steps_at_once_one_takes_effect(place: SinkPlace) -> None:
    """Every thread, with a connection of its own, counts one record up; none is counted twice or lost."""
    failures: list[BaseException] = []

    def count() -> None:
        sink = sink_of(place)
        with StoreConnection(sink.connect, sink.unavailable, repr(sink)) as connection:
            for _ in range(STEPS):
                while not Patience(60).run(lambda _: connection.run(up)):
                    pass

    def up(store: Store) -> bool:
        before = store.get("q/count")
        number = int(before or b"0") + 1
        return store.step({"q/count": before}, {"q/count": b"%d" % number}, *row(number))

    def guarded() -> None:
        try:
            count()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(WRITERS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if failures:
        raise AssertionError(f"a step failed beside others: {failures[0]!r}") from failures[0]
    with connected(place) as store:
        same("the count", store.get("q/count"), b"%d" % (WRITERS * STEPS))
    same("what is visible", place.shown(), due_rows(1, WRITERS * STEPS))


STORE_CHECKS: tuple[Callable[[SinkPlace], None], ...] = (
    a_step_is_there_for_every_connection,
    a_step_that_is_not_as_expected_changes_nothing,
    a_record_is_removed,
    a_scan_gives_what_lies_between_in_order,
    of_steps_at_once_one_takes_effect,
)
"""What a store promises of its records and steps."""
