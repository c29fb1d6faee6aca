"""Spark's offsets of a query that has a source of ticks beside each of its own, and of one that has none any more."""

from __future__ import annotations

import pytest

from clonos.spark.ticks import fitted

HEAD = 'v1\n{"batchWatermarkMs":0,"conf":{}}\n'
ONE, TWO = '{"version":1,"positions":[3,4]}', '{"topic":{"0":7}}'


@pytest.mark.parametrize(
    ("sources", "without", "with_ticks", "ticked"),
    [
        (1, [ONE], [ONE, "-"], [ONE, "1795465790"]),
        (2, [ONE, TWO], [ONE, "-", TWO, "-"], [ONE, "17", TWO, "18"]),
        (2, ["-", TWO], ["-", "-", TWO, "-"], ["-", "17", TWO, "-"]),
    ],
)
def test_ticks_come_and_go(
    sources: int, without: list[str], with_ticks: list[str], ticked: list[str]
) -> None:
    def file(lines: list[str]) -> bytes:
        return (HEAD + "\n".join(lines)).encode()

    assert fitted(file(without), sources, ticking=True) == file(with_ticks)
    for lines in (with_ticks, ticked):
        assert fitted(file(lines), sources, ticking=False) == file(without)
        assert fitted(file(lines), sources, ticking=True) == file(lines)
    assert fitted(file(without), sources, ticking=False) == file(without)


def test_what_is_not_known_stays_as_it_is() -> None:
    for said in (b"v2\n{}\n{}", (HEAD + "\n".join([ONE] * 3)).encode(), b"v1"):
        for ticking in (True, False):
            assert fitted(said, 2, ticking=ticking) == said
