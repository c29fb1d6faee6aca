"""Of which events the rows of NexMark queries are, in plain Python, from what the queries are defined to keep.

Taken as given is what the run decided: in which order records came and timers fired at each instance, what the clock
said then, and which rows each call gave. What a call leaves in the state of its key is said here once more for each
stage, as a rule about the key's events. A row is *exactly* of the record that its call was given, or of the one that
its timer was set for, and *at most* of what the state of the key was made of.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from clonos.archive.reading import ArchivedInstance, ArchivedQuery, desk_for
from clonos.archive.tracing import TracedCall, Watcher
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.ids import RecordId
from clonos.tools.nexmark import q08, q12

Events = frozenset[int]


@dataclass(frozen=True)
class Of:
    """Of which events a row is, or a timer, or what is kept."""

    exact: Events = frozenset()
    at_most: Events = frozenset()

    def __or__(self, other: Of) -> Of:
        return Of(self.exact | other.exact, self.at_most | other.at_most)

    @property
    def all(self) -> Events:
        return self.exact | self.at_most

    @property
    def settled(self) -> Of:
        return Of(self.exact, self.at_most - self.exact)


Key = tuple[Any, ...]
Ends = Callable[[dict[Any, Any], TracedCall], bool]
"""Whether a call has changed what is kept of a key. `kept` is the rule's own; it is emptied where the state is."""


def always(kept: dict[Any, Any], call: TracedCall) -> bool:
    return bool(call.inputs)


def gives_rows(kept: dict[Any, Any], call: TracedCall) -> bool:
    return bool(call.outputs)


def waits_for_its_seller(kept: dict[Any, Any], call: TracedCall) -> bool:
    """q3: an auction is kept until its seller is known, a person for ever."""
    row: Any = call.inputs[0].row
    was_known = "known" in kept
    if row.auction is None:
        kept["known"] = True
    return row.auction is None or not was_known


def raises_the_price(kept: dict[Any, Any], call: TracedCall) -> bool:
    """q4: an auction; a bid that is early, or that is the highest so far in the auction's life."""
    row: Any = call.inputs[0].row
    if row.price is None:
        kept["life"] = row.dateTime, row.expires
        kept["best"] = max(
            (price for at, price in kept.get("early", ()) if row.dateTime <= at <= row.expires), default=-1
        )
        return True
    if "life" not in kept:
        kept.setdefault("early", []).append((row.dateTime, row.price))
        return True
    opens, expires = kept["life"]
    is_best = opens <= row.dateTime <= expires and row.price > kept["best"]
    if is_best:
        kept["best"] = row.price
    return is_best


def is_higher(kept: dict[Any, Any], call: TracedCall) -> bool:
    """q7: of equal prices the first is kept."""
    row: Any = call.inputs[0].row
    before = kept.get("price")
    kept["price"] = max(row.price, 0 if before is None else before)
    return before != kept["price"] and row.price == kept["price"]


def until_the_window_is_over(size: int) -> Ends:
    """q8, q12: all records, until a timer comes to the end of the window in which the last one came."""

    def ends(kept: dict[Any, Any], call: TracedCall) -> bool:
        if call.inputs:
            (clock, *_) = [one.given for one in call.asked if one.kind == "clock"]
            kept["window"] = clock // size
            return True
        ((due, _, _),) = call.timers
        if (kept.get("window", 0) + 1) * size <= due:
            kept.clear()
        return False

    return ends


def until_all_sessions_are_over(kept: dict[Any, Any], call: TracedCall) -> bool:
    """q11: all bids, until each is in a session that was given out."""
    for one in call.inputs:
        row: Any = one.row
        kept[row.event] = row.dateTime
    for _, _, start, end, _ in call.outputs:
        for event in [event for event, at in kept.items() if start <= at <= end]:
            del kept[event]
    # A timer that comes early changes nothing but when the next one is due.
    return True


RULES: dict[str, dict[str, Ends]] = {
    "q1": {"convert": gives_rows},
    "q3": {"join": waits_for_its_seller},
    "q4": {"winning": raises_the_price, "mean": always},
    "q5": {"count": always, "hottest": gives_rows},
    "q7": {"highest_of_share": is_higher, "highest": gives_rows},
    "q8": {"join": until_the_window_is_over(q08.WINDOW_US)},
    "q11": {"session": until_all_sessions_are_over},
    "q12": {"count": until_the_window_is_over(q12.WINDOW_US)},
    "q13": {"look_up": gives_rows},
}
"""By stage. Those without a key keep nothing."""
STATELESS = frozenset({"convert", "look_up"})


class _Calls(Watcher):
    keeps_state = False
    is_on = True

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[TracedCall] = []

    def ended(self, call: TracedCall) -> None:
        self.calls.append(call)


def calls_of(instance: ArchivedInstance) -> list[TracedCall]:
    """In their order."""
    watcher = _Calls()
    with desk_for(instance, watcher) as desk:
        assert instance.last_ended is not None
        for found in instance.repeated(instance.last_ended, desk, since=instance.first):
            assert not isinstance(found, Lacking), found
    return watcher.calls


@dataclass
class Reference:
    """Of a run: of which events each row of each stage is, and which event each record of a source is."""

    query: str
    rows: dict[RecordId, Of] = field(default_factory=dict)
    events: dict[RecordId, int] = field(default_factory=dict)

    @classmethod
    def of(cls, query: str, archived: ArchivedQuery) -> Reference:
        made = cls(query)
        for node in archived.operators:
            for instance in archived.instances_of(node):
                if instance.segments:
                    made._add(instance)
        return made

    def _add(self, instance: ArchivedInstance) -> None:
        rule = RULES[self.query][instance.operator]
        made_of: dict[Key, Of] = {}
        kept: dict[Key, dict[Any, Any]] = defaultdict(dict)
        timers: dict[Any, Of] = {}
        for call in calls_of(instance):
            assert len(call.inputs) + len(call.timers) == 1
            (key,) = call.keys
            state = made_of.get(key, Of())
            own = Of()
            for one in call.inputs:
                own |= self._record(RecordId(one.channel, one.position), one.row)
            for due, name, is_event in call.timers:
                own |= timers.pop((key, due, name, is_event))
            row = (own | Of(at_most=state.all)).settled
            for at in range(len(call.outputs)):
                self.rows[RecordId(instance.origin.channel, call.first + at)] = row
            for one in call.asked:
                if one.kind == "timer" and one.what.endswith("is set"):
                    _, (due, _, name), is_event = one.identity
                    timers.setdefault((key, due, name, is_event), row)
            before = len(kept[key])
            if rule(kept[key], call) and instance.operator not in STATELESS:
                made_of[key] = state | own
            if call.timers and before and not kept[key]:
                made_of.pop(key, None)

    def _record(self, record: RecordId, row: Any) -> Of:
        if record in self.rows:
            return self.rows[record]
        self.events[record] = row.event
        return Of(frozenset([row.event]))
