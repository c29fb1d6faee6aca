"""An explained row as text, with columns masked, and as a picture."""

from __future__ import annotations

import copy
import xml.etree.ElementTree as ET
from types import SimpleNamespace
from typing import Any

import pytest

from clonos.archive import call_graph
from clonos.archive.drawing import draw
from clonos.archive.explain import RowId, _said
from clonos.archive.masking import WITHOUT_TEXT, Mask
from clonos.archive.shown_value import as_json
from clonos.errors import ClonosError, ConfigurationError, StateError, UserFunctionError
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.ids import Origin
from clonos.protocol.topology import Column
from clonos.tools.explain import _lacks, lines

QUERY = "a" * 32
SAID: dict[str, Any] = {
    "id": "3-1-17",
    "operator": "total",
    "instance": 1,
    "epoch": 2,
    "row": {"card": "4711", "spent": 12.5},
    "processes": [
        {"did": "ran", "start": 1, "attempt": 7, "replacement": 0, "host": "worker-7", "pid": 4242},
        {"did": "repeated", "start": 1, "attempt": 7, "replacement": 1, "host": "worker-7", "pid": 4243},
    ],
    "version": "1",
    "made_by_a": "record",
    "keys": [["4711"]],
    "state": [{"key": ["4711"], "before": None, "after": {"spent": 12.5}}],
    "asked": [
        {"kind": "clock", "what": "of the bundle", "at": "2026-11-29T11:00:00Z"},
        {"kind": "call", "what": "price('4711')", "given": 12.5},
        {"kind": "call", "what": "risk('4711')", "raised": "Timeout: <no answer> & more"},
    ],
    "inputs": [
        {
            "row": {"card": "4711", "n": 1},
            "id": "2-0-5",
            "made_by": {
                "id": "2-0-5",
                "operator": "review",
                "instance": 0,
                "epoch": 2,
                "row": {"card": "4711", "n": 1},
                "processes": [{"did": "repeated", "start": 1, "attempt": 3, "replacement": 0}],
                "version": "1",
                "made_by_a": "timer",
                "keys": [["4711"]],
                "timers": [{"name": "late", "due": "2026-11-29T10:59:00Z", "time": "processing"}],
                "fired_at": "2026-11-29T10:59:01Z",
                "state": [],
                "asked": [],
                "inputs": [],
            },
        },
        {"row": {"card": "4711", "n": 2}, "source": "payments-0", "position": 99},
        {
            "row": {"card": "4711", "n": 3},
            "id": "2-1-8",
            "made_by": {"id": "2-1-8", "operator": "review", "instance": 1, "lacking": "it is damaged"},
        },
    ],
}


def test_text_says_all_of_it_each_row_below_what_is_made_of_it() -> None:
    assert list(lines(SAID)) == [
        "row 3-1-17  card='4711', spent=12.5",
        "  made by total[1], epoch 2, version 1",
        "  ran      in start 1, task 7 on worker-7, process 4242",
        "  repeated in start 1, task 7 on worker-7, process 4243, 1 lost before it",
        "  called   for one record",
        "  key      '4711'",
        "  state    ['4711']",
        "    before None",
        "    after  {'spent': 12.5}",
        "  clock    of the bundle -> 2026-11-29T11:00:00Z",
        "  call     price('4711') -> 12.5",
        "  call     risk('4711') -> raised Timeout: <no answer> & more",
        "  of       row 2-0-5  card='4711', n=1",
        "      made by review[0], epoch 2, version 1",
        "      ran      in a process that was lost before it had left this in the archive",
        "      repeated in start 1, task 3",
        "      called   at the timer, at 2026-11-29T10:59:01Z",
        "      timer    'late', due at 2026-11-29T10:59:00Z in processing time",
        "      key      '4711'",
        "  of       card='4711', n=2  from payments-0, position 99",
        "  of       row 2-1-8  card='4711', n=3",
        "      made by review[1]",
        "      CANNOT BE HAD: it is damaged",
    ]
    assert _lacks(SAID)


def test_a_call_that_was_given_many_records_is_not_all_in_the_text() -> None:
    one = {"row": {"n": 1}, "source": "payments-0", "position": 9}
    many = {**SAID, "made_by_a": "bundle", "inputs": [one] * 1234, "keys": [[at] for at in range(40)]}
    text = list(lines(many))
    assert text[-1] == "  of       1,214 more records, which the call was given with these"
    assert text.count("  of       n=1  from payments-0, position 9") == 20
    assert "  called   for 1234 records at once" in text and "  key      and 20 more" in text


def test_a_mask_that_hides_nothing_is_refused_and_one_of_entries_of_maps_alone_is_told_of() -> None:
    def query(kind: str) -> Any:
        columns = (Column("n", "bigint"), Column("more", kind))
        node = SimpleNamespace(columns=columns, side_outputs={}, derived={})
        return SimpleNamespace(program=SimpleNamespace(nodes=(node,)))

    assert Mask({"N", "x"}).check(query("struct<x:int>")) == ""
    with pytest.raises(
        ConfigurationError, match=r"no row of the query has a column card.*There are more, n, x"
    ):
        Mask({"card", "n"}).check(query("struct<x:int>"))
    told = Mask({"card", "n"}).check(query("array<map<string,int>>"))
    assert told == "no column is called card: hidden are entries of maps under that name. There are more, n"


def test_what_is_masked_is_nowhere() -> None:
    said = copy.deepcopy(SAID)
    Mask({"card"}).hide(said)
    text = "\n".join(lines(said)) + draw(said)
    assert "4711" not in text and "spent=***" not in text and "spent=12.5" in text
    assert "n=1" in text and "2026-11-29" not in text
    row = {"m": {"CARD": "4711", "n": 1, 7: {"card": [4711]}}, "l": [{"card": 4711}]}
    assert Mask({"card"}).row(row) == {
        "m": {"CARD": "***", "n": 1, 7: {"card": "***"}},
        "l": [{"card": "***"}],
    }
    assert not any(map(Mask({"card"}).hides_of_text, ["NaN", "[NaN, Infinity]", '{"n": NaN}']))
    assert Mask({"card"}).hides_of_text('{"a": {"c\\u0061rd": 4711}}') and not Mask({"card"}).hides_of_text(
        "card"
    )


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (UserFunctionError("no card 4711"), WITHOUT_TEXT),
        (StateError("epoch 1 is gone"), "what the row 3-1-17 is made of cannot be had: epoch 1 is gone"),
    ],
)
def test_an_error_where_kept_records_are_looked_for_is_masked_if_it_may_have_values(
    error: ClonosError, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Raises:
        def __init__(self, query: Any, keeps_rows: bool) -> None:
            pass

        def of_rows(self, origin: Any, rows: Any) -> Any:
            raise error

    monkeypatch.setattr(call_graph, "ArchivedDerivations", Raises)
    query: Any = None
    row = RowId.parse("3-1-17", QUERY)
    why = call_graph._derivations(query, row.origin, [row.record])[row.record]
    assert isinstance(why, Lacking) and error.message in why.why
    said = {**copy.deepcopy(SAID), **_said(call_graph._said_of(row.record, why))}
    Mask({"card"}).hide(said)
    assert said["lacking"] == shown and f"  CANNOT BE HAD: {shown}" in lines(said) and _lacks(said)
    assert "4711" not in draw(said)


def test_the_picture_has_every_box_and_is_well_formed() -> None:
    drawn = draw(SAID)
    root = ET.fromstring(drawn)
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    for text in (
        "total[1]",
        "review[0]",
        "review[1]",
        "payments-0",
        "it is damaged",
        "card='4711'",
        "position 99",
    ):
        assert text in texts
    assert any(text is not None and "<no answer>" in text for text in texts)
    _, top, _, height = (float(part) for part in root.get("viewBox", "").split())
    for each in root.iter("{http://www.w3.org/2000/svg}text"):
        assert top + 10 < float(each.get("y", "")) < top + height, "text is in the picture"
    boxes = list(root.iter("{http://www.w3.org/2000/svg}rect"))[1:]
    places = [tuple(float(each.get(name, "")) for name in ("x", "y", "width", "height")) for each in boxes]
    assert len(places) == 4
    for at, (x, y, width, height) in enumerate(places):
        for other_x, other_y, other_width, other_height in places[at + 1 :]:
            assert (
                x + width < other_x
                or other_x + other_width < x
                or y + height < other_y
                or other_y + other_height < y
            ), "boxes do not overlap"


def test_a_call_that_comes_again_is_shown_once() -> None:
    said = copy.deepcopy(SAID)
    again = {"row": {"card": "4711", "n": 1}, "id": "2-0-5", "explained_above": "2-0-5"}
    other = {"row": {"card": "4711", "n": 6}, "id": "2-0-6", "explained_above": "2-0-5"}
    kept = {"row": {"card": "4711", "n": 0}, "source": "payments-0", "position": 12, "kept": True}
    of_others = {
        "id": "2-0-7",
        "operator": "review",
        "instance": 0,
        "epoch": 2,
        "row": {"card": "4711", "n": 7},
    }
    of_others |= {"explained_above": "2-0-5", "inputs": [kept]}
    third = {"row": {"card": "4711", "n": 7}, "id": "2-0-7", "made_by": of_others}
    said["inputs"] += [again, other, third]
    said["not_explained"] = {"rows": 1234, "calls": 100}
    assert [*lines(said)] == [
        *lines(SAID),
        "  of       row 2-0-5  card='4711', n=1  (as above)",
        "  of       row 2-0-6  card='4711', n=6  (as above, with row 2-0-5)",
        "  of       row 2-0-7  card='4711', n=7",
        "      made by review[0], epoch 2",
        "      called   with row 2-0-5, as above",
        "      kept     card='4711', n=0  from payments-0, position 12",
        "not explained: 1,234 more rows, behind the 100 calls that are: --calls 200 shows more",
    ]
    boxes, arrows = _drawn(draw(said))
    assert draw(said).count(">review[0]<") == 1 and "position 12" in boxes
    assert "and 2 more rows" in boxes and "1234 rows behind it are not explained" in boxes
    assert arrows == 5, "each of four boxes has one, and so has the row"
    Mask({"card"}).hide(said)
    text = "\n".join(lines(said)) + draw(said)
    assert "4711" not in text and "(as above, with row 2-0-5)" in text


def test_boxes_of_a_call_whose_rows_go_different_ways_are_left_of_all_that_is_made_of_it() -> None:
    """In the picture: one of its rows goes to the row that is explained, another one there by another operator."""
    call = {"processes": [], "version": "1", "made_by_a": "record", "keys": [], "state": [], "asked": []}
    first = {
        "id": "2-0-1",
        "operator": "first",
        "instance": 0,
        "epoch": 1,
        "row": {"n": 1},
        "inputs": [],
        **call,
    }
    between = {"id": "3-0-1", "operator": "between", "instance": 0, "epoch": 1, "row": {"n": 3}, **call}
    between["inputs"] = [{"row": {"n": 2}, "id": "2-0-2", "explained_above": "2-0-1"}]
    said = {"id": "4-0-1", "operator": "last", "instance": 0, "epoch": 1, "row": {"n": 4}, **call}
    said["inputs"] = [
        {"row": {"n": 1}, "id": "2-0-1", "made_by": first},
        {"row": {"n": 3}, "id": "3-0-1", "made_by": between},
    ]
    boxes, arrows = _drawn(draw(said))
    assert boxes["first[0]"] < boxes["between[0]"] < boxes["last[0]"] and arrows == 4


def _drawn(picture: str) -> tuple[dict[str, float], int]:
    """Texts, with how far to the right they are; and how many arrows there are."""
    root, svg = ET.fromstring(picture), "{http://www.w3.org/2000/svg}"
    found: dict[str, float] = {}
    for each in root.iter(f"{svg}text"):
        text = each.text or ""
        found[text] = float(each.get("x", ""))
    return found, sum(each.get("marker-end") is not None for each in root.iter(f"{svg}path"))


@pytest.mark.parametrize("text", ["3-1-17", f"{QUERY}/3-1-17", f"{QUERY}/4-0/3-1-17", "4-0/3-1-17"])
def test_ids_as_sinks_show_them(text: str) -> None:
    assert RowId.parse(text, QUERY) == RowId(Origin.of(3, 1), 17)


@pytest.mark.parametrize(
    ("text", "why"), [("17", "no id of a row"), ("3-1-17x", "no id"), (f"{'b' * 32}/3-1-17", "of query b")]
)
def test_what_is_no_id_of_a_row_of_the_query_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        RowId.parse(text, QUERY)


def test_keys_of_a_dict_stay_apart_in_json() -> None:
    assert as_json({1: "a", "b": 2, (3, None): True}) == {"1": "a", "b": 2, "(3, None)": True}
    assert as_json({1: "a", "1": "b"}) == {"1": "a", "'1'": "b"}
    assert as_json({"x": {True: 1, "True": 2}}) == {"x": {"True": 1, "'True'": 2}}
