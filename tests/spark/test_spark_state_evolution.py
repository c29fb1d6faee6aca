"""Fields of declared state that change over a checkpoint, while replicas die: values are found by their names."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from streams import Place

from clonos.errors import CheckpointMismatch

pytestmark = pytest.mark.spark
PAID = "card string, amount int"


class Seen:
    """Counts and sums per card, with the fields that it is told to declare."""

    def __init__(self, value: str, item: str) -> None:
        self.value, self.item = value, item

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", self.value)
        self.amounts = handle.getListState("amounts", self.item)

    def handleInputRows(self, key: Any, rows: Any, times: Any) -> Any:
        for row in rows:
            kept = self.total.get()
            fields = dict(zip(self.total_names, kept or (None,) * len(self.total_names), strict=True))
            fields["n"] = (fields["n"] or 0) + 1
            if "last" in fields:
                fields["last"] = row.amount
            self.total.update(tuple(fields.values()))
            self.amounts.appendValue(tuple(getattr(row, name, None) for name in self.item_names))
            yield key[0], str(fields), str([tuple(each) for each in self.amounts.get()])

    @property
    def total_names(self) -> list[str]:
        return [field.split()[0] for field in self.value.split(", ")]

    @property
    def item_names(self) -> list[str]:
        return [field.split()[0] for field in self.item.split(", ")]

    def close(self) -> None:
        """Nothing is held."""


def seen(place: Place, value: str, item: str, version: str, **more: Any) -> Any:
    return (
        place.causal(PAID)
        .groupBy("card")
        .transformWithState(
            Seen(value, item),
            "card string, total string, amounts string",
            "update",
            "none",
            name="seen",
            version=version,
            per="bundle",
            **more,
        )
    )


def feed(place: Place, amount: int, rows: int) -> tuple[str, str]:
    place.write([{"card": "a", "amount": amount}])
    last = place.await_rows(rows)[-1]
    return last["total"], last["amounts"]


def test_fields_are_found_by_their_names(place: Place) -> None:
    first = ("n int, last int, old string", "card string, amount int")
    place.start(seen(place, *first, "1"))
    assert feed(place, 7, 1) == ("{'n': 1, 'last': 7, 'old': None}", "[('a', 7)]")
    place.query.processAllAvailable()
    place.await_commit()
    place.stop()
    second = ("last long, n double", "amount long")
    with pytest.raises(
        CheckpointMismatch, match=r"state variable 'amounts'.*give the operator a new version"
    ):
        place.start(seen(place, *second, "1"))
    place.start(seen(place, *second, "2", previous={"1": Seen(*first)}))
    assert feed(place, 8, 2) == ("{'last': 8, 'n': 2.0}", "[(7,), (8,)]")
    place.kill()
    assert feed(place, 9, 3) == ("{'last': 9, 'n': 3.0}", "[(7,), (8,), (9,)]")
    place.query.processAllAvailable()
    place.await_commit()
    place.stop()
    third = ("last double, n double, more string", "amount long, card string")
    place.start(seen(place, *third, "2"))  # what is kept is read as it is
    assert feed(place, 10, 4) == (
        "{'last': 10, 'n': 4.0, 'more': None}",
        "[(7, None), (8, None), (9, None), (10, 'a')]",
    )


def test_fields_of_a_group_state_too(place: Place) -> None:
    def counted(key: Any, frames: Any, state: Any) -> Any:
        names = state_fields.split(", ")
        kept = dict(
            zip([name.split()[0] for name in names], state.getOption or (None,) * len(names), strict=True)
        )
        kept["n"] = (kept["n"] or 0) + sum(map(len, frames))
        state.update(tuple(kept.values()))
        yield pd.DataFrame({"card": [key[0]], "said": [str({name: kept[name] for name in sorted(kept)})]})

    for state_fields, version, expected in (
        ("n int, old string", "1", "{'n': 1, 'old': None}"),
        ("x string, n long", "2", None),
        ("n long", "2", "{'n': 2}"),
    ):

        def run(fields: str = state_fields, number: str = version) -> Any:
            grouped = place.causal(PAID).groupBy("card")
            made = grouped.applyInPandasWithState(
                counted,
                "card string, said string",
                fields,
                "update",
                "NoTimeout",
                name="n",
                version=number,
                per="batch",
            )
            place.writer(made).trigger(availableNow=True).start().awaitTermination()

        place.write([{"card": "a", "amount": 1}] if expected else [])
        if expected is None:
            with pytest.raises(CheckpointMismatch, match="has 'x' and lacks 'old', which may be the same"):
                run()
        else:
            run()
            assert place.rows()[-1]["said"] == expected
