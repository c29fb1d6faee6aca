"""The status of a replica server: what lacks a field is refused, what a later release adds is kept."""

from __future__ import annotations

import pytest
from server_status import said

from clonos.errors import ProtocolError
from clonos.wire.server_status import ServerStatus, merged, parse_status, placed


@pytest.mark.parametrize("name", sorted(ServerStatus.__required_keys__))
def test_a_status_that_lacks_a_field_is_refused_by_its_name(name: str) -> None:
    lacking = said(1)
    del lacking[name]
    with pytest.raises(ProtocolError, match=f"lacks {name}"):
        parse_status(lacking, "answer")


def test_what_a_later_release_adds_is_kept() -> None:
    assert parse_status(said(1, added=7), "answer") == said(1, added=7)


def test_of_several_servers_the_first_one_speaks_and_replicas_say_where_they_are() -> None:
    first = placed(parse_status(said(1, deaths=2, spares=[5], replicas=[{"pid": 10}]), "answer"), None)
    other = placed(parse_status(said(2, deaths=1, spares=[6], replicas=[{"pid": 20}]), "answer"), "far:7077")
    whole = merged(first, other)
    assert whole["pid"] == 1 and whole["deaths"] == 3 and whole["spares"] == [5, 6]
    assert [(one["pid"], one["server"], one["place"]) for one in whole["replicas"]] == [
        (10, 0, None),
        (20, 1, "far:7077"),
    ]
    assert [(one["pid"], one["place"]) for one in whole["others"]] == [(2, "far:7077")]
