"""The command `clonos explain`: why a visible row says what it says, out of the archive."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clonos.archive.drawing import draw
from clonos.archive.explain import RowId, explain
from clonos.archive.masking import Mask
from clonos.archive.reading import ArchivedQuery
from clonos.archive.shown_value import as_json, columns
from clonos.operators.rows import zone_of
from clonos.protocol.archive.episode import Share
from clonos.tools.written_file import written_to
from clonos.values.readable import span

_SHOWN = 20
"""Records, keys and states of one call, in text; JSON has all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `clonos explain`."""
    parser.add_argument("checkpoint", help="the query's checkpointLocation")
    parser.add_argument("row", help="the row's id, as its sink shows it (clonos_id)")
    parser.add_argument(
        "--inputs",
        type=int,
        default=10,
        metavar="N",
        help="so many records of each call are followed back themselves (%(default)s)",
    )
    parser.add_argument(
        "--depth", type=int, default=64, metavar="N", help="so many operators back (%(default)s)"
    )
    parser.add_argument(
        "--calls",
        type=int,
        default=100,
        metavar="N",
        help="so many calls in all, the nearest ones (%(default)s)",
    )
    parser.add_argument(
        "--mask", default="", metavar="COLUMNS", help="with commas: their values are not shown, nor is state"
    )
    parser.add_argument("--draw", metavar="FILE.svg", help="a picture of it, too")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Print it; 1 where something of it cannot be had."""
    query = ArchivedQuery(arguments.checkpoint)
    query.load_programs()
    row = RowId.parse(arguments.row, query.id)
    mask = Mask.parse(arguments.mask)
    if note := mask.check(query):
        print(note, file=sys.stderr)
    said = explain(query, row, inputs=arguments.inputs, depth=arguments.depth, calls=arguments.calls)
    if mask:
        mask.hide(said)
    if arguments.json:
        print(json.dumps(as_json(said, zone_of(query.zone)), indent=1))
    else:
        print("\n".join(lines(said)))
    if arguments.draw is not None:
        with written_to(Path(arguments.draw), "--draw"):
            Path(arguments.draw).write_text(draw(said), "utf-8")
    return 1 if _lacks(said) else 0


def _lacks(said: dict[str, Any]) -> bool:
    made = (one["made_by"] for one in said.get("inputs", ()) if "made_by" in one)
    return "lacking" in said or "kept_before" in said or any(map(_lacks, made))


def lines(said: dict[str, Any]) -> Iterator[str]:
    """As text: what a row is made of is indented below it."""
    yield f"row {said['id']}  {columns(said.get('row'))}".rstrip()
    yield from _made(said)
    if (left_out := said.get("not_explained")) is not None:
        rows, calls = left_out["rows"], left_out["calls"]
        yield (
            f"not explained: {rows:,} more row{'' if rows == 1 else 's'}, behind the {calls:,} calls that are: "
            f"--calls {2 * calls} shows more"
        )


def _made(said: dict[str, Any]) -> Iterator[str]:
    if "operator" in said:
        epoch = f", epoch {said['epoch']}" if "epoch" in said else ""
        version = f", version {said['version']}" if "version" in said else ""
        yield f"  made by {said['operator']}[{said['instance']}]{epoch}{version}"
    if "lacking" in said:
        yield f"  CANNOT BE HAD: {said['lacking']}"
        return
    if "explained_above" in said:
        yield f"  called   with row {said['explained_above']}, as above"
    else:
        yield from _what_it_did(said)
    shown = [one for at, one in enumerate(said["inputs"]) if at < _SHOWN or "made_by" in one]
    for one in shown:
        yield from _input(one)
    if (more := len(said["inputs"]) - len(shown)) > 0:
        which = "that were kept" if said["inputs"][-1].get("kept") else "which the call was given with these"
        yield f"  of       {more:,} more records, {which}"
    if "kept_before" in said:
        yield f"  kept     before epoch {said['kept_before']}, and not in the archive: more of what it is made of"


def _what_it_did(said: dict[str, Any]) -> Iterator[str]:
    yield from _processes(said["processes"])
    at_once = sum(1 for each in said["inputs"] if not each.get("kept"))
    how = {"record": "for one record", "bundle": f"for {at_once} records at once"}
    yield f"  called   {how.get(said['made_by_a'], 'at the ' + said['made_by_a'])}" + _fired(said)
    for timer in said.get("timers", ()):
        yield f"  timer    {timer['name']!r}, due at {timer['due']} in {timer['time']} time"
    for key in filter(None, said["keys"][:_SHOWN]):
        yield f"  key      {', '.join(map(repr, key)) if isinstance(key, list) else key}"
    if (more := len(said["keys"]) - _SHOWN) > 0:
        yield f"  key      and {more:,} more"
    for one in said["state"][:_SHOWN]:
        yield f"  state    {one['key']!r}"
        yield f"    before {one['before']!r}"
        yield f"    after  {one['after']!r}"
    for one in said["asked"]:
        took = f"  ({span(one['took_us'])})" if "took_us" in one else ""
        yield f"  {one['kind']:<8} {one['what']}{_given(one)}{took}"


def _fired(said: dict[str, Any]) -> str:
    fired = f", at {said['fired_at']}" if "fired_at" in said else ""
    return fired + (f", with the watermark at {said['watermark']}" if "watermark" in said else "")


def _processes(said: list[dict[str, Any]]) -> Iterator[str]:
    """What is left in the archive says who has run it; of a process that was lost before it left that, nothing does."""
    if not any(one["did"] in (Share.RAN, Share.UNKNOWN) for one in said):
        yield "  ran      in a process that was lost before it had left this in the archive"
    for one in said:
        lost = f", {one['replacement']} lost before it" if one["replacement"] else ""
        where = f" on {one['host']}, process {one['pid']}" if "host" in one else ""
        yield f"  {one['did']:<8} in start {one['start']}, task {one['attempt']}{where}{lost}"


def _given(one: dict[str, Any]) -> str:
    for name, said in (("at", "{}"), ("raised", "raised {}")):
        if name in one:
            return f" -> {said.format(one[name])}"
    return f" -> {one['given']!r}" if "given" in one else ""


def _input(one: dict[str, Any]) -> Iterator[str]:
    of = "kept" if one.get("kept") else "of"
    if "source" in one:
        yield f"  {of:<8} {columns(one['row'])}  from {one['source']}, position {one['position']}"
        return
    above = one.get("explained_above")
    as_above = "" if above is None else f"  (as above{'' if above == one['id'] else f', with row {above}'})"
    yield f"  {of:<8} row {one['id']}  {columns(one['row'])}{as_above}"
    if "made_by" in one:
        yield from (f"    {line}" for line in _made(one["made_by"]))
