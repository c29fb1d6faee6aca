"""All queries of the suite, by name."""

from __future__ import annotations

from clonos.tools.nexmark import q01, q03, q04, q05, q07, q08, q11, q12, q13
from clonos.tools.nexmark.query import Query

QUERIES: dict[str, Query] = {
    module.QUERY.name: module.QUERY for module in (q01, q03, q04, q05, q07, q08, q11, q12, q13)
}
