"""The tables beside the streams of a query: read when it starts, and again from time to time, and published as
versions.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from clonos.errors import ClonosError, Fenced
from clonos.protocol.ids import Epoch, NodeId
from clonos.spark.plan import TablePlan
from clonos.storage.table_versions import TableVersions

LOG = logging.getLogger("clonos")


class TableKeeper:
    """`committed` says the last epoch that has committed; `check_leads` raises Fenced where another driver leads."""

    def __init__(
        self,
        tables: Mapping[NodeId, TablePlan],
        checkpoint: str,
        committed: Callable[[], Epoch],
        check_leads: Callable[[], None],
    ) -> None:
        self._tables = {node: (plan, TableVersions(checkpoint, node)) for node, plan in tables.items()}
        self._committed = committed
        self._check_leads = check_leads
        self._stopping = threading.Event()
        self._publishing = threading.Lock()

    def start(self) -> None:
        """All tables as they are now are there when this returns. Raises what reading one raises."""
        for node in self._tables:
            self._read(node)
        if any(plan.every is not None for plan, _ in self._tables.values()):
            threading.Thread(target=self._keep, name="clonos-tables", daemon=True).start()

    def stop(self) -> None:
        """Nothing is published from now on. A read that is under way is not waited for."""
        with self._publishing:
            self._stopping.set()

    def _keep(self) -> None:
        now = time.monotonic()
        due = {node: now + plan.every for node, (plan, _) in self._tables.items() if plan.every is not None}
        while not self._stopping.wait(max(0.0, min(due.values()) - time.monotonic())):
            node = min(due, key=due.__getitem__)
            every = self._tables[node][0].every
            assert every is not None
            due[node] = time.monotonic() + every
            try:
                self._read(node)
            except Fenced:
                return  # another driver reads it now
            except (Exception, SystemExit) as error:
                LOG.warning("the table of node %d could not be read, and stays as it is: %s", node, error)

    def _read(self, node: NodeId) -> None:
        plan, versions = self._tables[node]
        if plan.key and versions.exist():
            return  # keys have begun with it, or will: it is what it was when the query first started
        table = in_columns_of(plan.schema, plan.read())
        with self._publishing:
            if not self._stopping.is_set():
                self._check_leads()
                versions.publish(table, committed=self._committed(), now=time.time())


def in_columns_of(schema: pa.Schema, table: Any) -> pa.Table:
    """A DataFrame's rows, or a table's, in these columns. Raises ClonosError where one of them is not there any more or
    cannot be made one of its type."""
    rows = table if isinstance(table, pa.Table) else table.toArrow()
    try:
        return rows.select(schema.names).cast(schema)
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ClonosError(
            f"the table has other columns than when the query was defined: {error}",
            hint="Its columns are bound to the query: start it anew, with a new version= of the join",
        ) from error
