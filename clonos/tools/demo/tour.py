"""What can be asked of a run of the demonstration that was kept: why passengers of a flight were paid, for one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from clonos.archive.explain import RowId
from clonos.archive.reading import ArchivedQuery
from clonos.protocol.archive.episode import Lacking
from clonos.tools.demo.job import TABLE

_PAID = f"select clonos_id, tailnum, amount from {TABLE} where decision = 'paid' order by amount desc, n"


def tour(folder: Path) -> Iterator[str]:
    """Commands, of the kept run of the causal side in `folder`. The last epoch of real time has not ended: nothing is
    said of its rows."""
    checkpoint = folder / "checkpoint"
    query = ArchivedQuery(str(checkpoint))
    with closing(sqlite3.connect(folder / "output.sqlite")) as database:
        for row, tailnum, amount in database.execute(_PAID):
            made = RowId.parse(row, query.id)
            instance = query.instance(made.origin)
            if instance is not None and not isinstance(instance.rows.made_in(made.number), Lacking):
                yield f"why were ${amount} paid for {tailnum}?"
                yield f"    clonos explain {checkpoint} {row} --draw {folder}/why.svg"
                yield "stop in the function that decided it:"
                yield f"    clonos replay {checkpoint} --row {row} --pdb"
                yield "keep that call as a test, and try it again:"
                yield f"    clonos export {checkpoint} --row {row} --to {folder}/calls"
                yield f"    pytest -p clonos.testing.pytest_plugin {folder}/calls"
                yield "what would be paid if only those were who are late by an hour and a half?"
                yield f"    clonos replay {checkpoint} --operator compensation --columns decision,amount \\"
                yield "        --against clonos.tools.flights.operators:compensation_from_90_minutes"
                yield "look at all of it in a browser:"
                yield f"    clonos serve {checkpoint} --archive"
                return
