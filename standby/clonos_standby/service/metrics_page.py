"""The page of metrics of a replica service: its own numbers, and the pages of all servers that it runs, as one.

A service has one address, which a scraper's configuration can name; the servers of its queries come and go.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families

from clonos_standby.server import metrics
from clonos_standby.server.log import log

CONTENT_TYPE: Final = metrics.CONTENT_TYPE
_ANSWER_SECONDS: Final = 2.0
_AT_ONCE: Final = 8


def render(said: dict[str, Any], addresses: Sequence[tuple[str, str]]) -> str:
    """`said` is what the service tells of itself (`Service.describe`); `addresses` are pages, by query. One that
    does not answer is left out: its query's `clonos_service_query_up` is 0."""
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="clonos-pages") as pool:
        pages = dict(zip((query for query, _ in addresses), pool.map(_page, addresses)))
    up = {each["query"]: pages.get(each["query"]) is not None for each in said["queries"]}
    found = [family for page in pages.values() if page is not None for family in page]
    return metrics.page([*_own(said, up), *_merged(found)])


def _own(said: dict[str, Any], up: dict[str, bool]) -> Iterable[Metric]:
    yield _gauge("slots", "Instances that may have a replica here", [((), said["slots"])])
    yield _gauge("free_slots", "Of those, how many no query has taken", [((), said["free"])])
    renewed = [((each["query"],), each["renewed_ago"]) for each in said["queries"]]
    yield _gauge("renewed_ago_seconds", "Since a query's driver has been heard of", renewed, ["query"])
    answers = [((query,), float(answered)) for query, answered in up.items()]
    yield _gauge("query_up", "1 where a query's server answers with its metrics", answers, ["query"])


def _gauge(
    name: str, says: str, samples: Iterable[tuple[Sequence[str], float]], labels: Sequence[str] = ()
) -> Metric:
    family = GaugeMetricFamily(f"clonos_service_{name}", f"{says}.", labels=labels)
    for said, value in samples:
        family.add_metric(said, value)
    return family


def _page(place: tuple[str, str]) -> list[Metric] | None:
    query, address = place
    try:
        with urllib.request.urlopen(address, timeout=_ANSWER_SECONDS) as answer:  # a server of this host
            return list(text_string_to_metric_families(answer.read().decode()))
    except (OSError, ValueError) as error:
        log("no_metrics", f"query {query}: its server does not answer at {address}: {error}", query=query)
        return None


def _merged(families: Iterable[Metric]) -> Iterable[Metric]:
    """Every family once, with the samples of all queries."""
    found: dict[str, Metric] = {}
    for family in families:
        found.setdefault(
            family.name, Metric(family.name, family.documentation, family.type)
        ).samples += family.samples
    return found.values()
