"""`clonos replay` does one of two things: options of the other one are refused, and not passed over."""

from __future__ import annotations

import pytest

from clonos import cli

ROW, AGAINST = ("--row", "3-0-1"), ("--against", "rules:f", "--operator", "see")
OF_COMPARING = (
    ("--operator", "see"),
    ("--on-timer", "rules:g"),
    ("--from", "1"),
    ("--to", "0"),
    ("--columns", "a"),
    ("--calls", "fail"),
    ("--examples", "10"),
    ("--json",),
)


def refused(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert cli.main(["replay", "/nowhere", *options]) == 1
    return capsys.readouterr().err


@pytest.mark.parametrize("given", OF_COMPARING, ids=lambda given: given[0])
def test_what_is_of_a_comparison_is_refused_of_a_row(
    given: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where what is given is what would be taken anyway."""
    assert f"--row takes no {given[0]}: that is for --against" in refused(capsys, *ROW, *given)


@pytest.mark.parametrize("given", [("--pdb",), ("--debugpy", "5678")], ids=lambda given: given[0])
def test_a_debugger_is_refused_of_a_comparison(
    given: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"--against takes no {given[0]}: that is for --row" in refused(capsys, *AGAINST, *given)


def test_all_that_are_of_no_use_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert "takes no --from and no --json: that" in refused(capsys, *ROW, "--json", "--from", "2", "--pdb")


def test_of_two_things_one_is_to_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    for more in ((), ("--pdb",), ("--json",)):
        said = refused(capsys, *ROW, "--against", "rules:f", *more)
        assert "they are two things. Leave one of them out" in said


@pytest.mark.parametrize("more", [(), ("--pdb",), ("--operator", "see")])
def test_something_has_to_be_said(more: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert "what is to be replayed is not said. Give either --row or --against" in refused(capsys, *more)


@pytest.mark.parametrize("right", [ROW, (*ROW, "--pdb"), AGAINST, (*AGAINST, "--json", "--from", "0")])
def test_what_belongs_together_is_taken(right: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """As the messages advise; there is no query here."""
    assert "/nowhere" in refused(capsys, *right)
