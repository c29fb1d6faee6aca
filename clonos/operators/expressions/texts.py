"""Functions of text, by code points."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any, Final

from clonos.operators.expressions.compiled import EvaluationError, Row, Scope, Value, evaluates
from clonos.operators.expressions.kinds import INTEGERS, need
from clonos.operators.expressions.tree import Expression

_DISPUTED: Final = "\N{LATIN LETTER PHARYNGEAL VOICED FRICATIVE}"
"""Had case once."""
_SIGMA: Final = "\N{GREEK CAPITAL LETTER SIGMA}"


def _all_text(expression: Expression) -> None:
    need(expression, all(arg.kind == "string" for arg in expression.args))


def null_safe(args: list[Value], apply: Callable[..., Any]) -> Value:
    """Null where an argument is; what comes behind it is not evaluated."""

    def applied(row: Row) -> Any:
        values = []
        for each in args:
            value = each(row)
            if value is None:
                return None
            values.append(value)
        return apply(*values)

    return applied


@evaluates("Concat")
def _concat(expression: Expression, args: list[Value], scope: Scope) -> Value:
    _all_text(expression)
    return null_safe(args, lambda *texts: "".join(texts))


@evaluates("Length")
def _length(expression: Expression, args: list[Value], scope: Scope) -> Value:
    need(expression, expression.args[0].kind in ("string", "binary"))
    return null_safe(args, len)


@evaluates("Substring")
def _substring(expression: Expression, args: list[Value], scope: Scope) -> Value:
    kinds = [arg.kind for arg in expression.args]
    need(expression, kinds == ["string", "int", "int"])
    return null_safe(args, substring)


def substring(text: str, position: int, length: int) -> str:
    """Counted from 1; from the end where it is negative, which may begin before the text does."""
    begin = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    end = begin + length
    return text[max(begin, 0) : max(end, 0)] if end > begin else ""


@evaluates("StartsWith", "EndsWith", "Contains")
def _part(expression: Expression, args: list[Value], scope: Scope) -> Value:
    _all_text(expression)
    tests: dict[str, Callable[[str, str], bool]] = {
        "StartsWith": str.startswith,
        "EndsWith": str.endswith,
        "Contains": str.__contains__,
    }
    return null_safe(args, tests[expression.op])


@evaluates("StringReplace")
def _replace(expression: Expression, args: list[Value], scope: Scope) -> Value:
    _all_text(expression)
    return null_safe(args, lambda text, old, new: text.replace(old, new) if old else text)


@evaluates("StringTrim", "StringTrimLeft", "StringTrimRight")
def _trim(expression: Expression, args: list[Value], scope: Scope) -> Value:
    """Spaces, or the characters of a second argument."""
    _all_text(expression)
    trims: dict[str, Callable[[str, str], str]] = {
        "StringTrim": str.strip,
        "StringTrimLeft": str.lstrip,
        "StringTrimRight": str.rstrip,
    }
    trim = trims[expression.op]
    if len(args) == 1:
        return null_safe(args, lambda text: trim(text, " "))
    return null_safe(args, trim)


@evaluates("Upper", "Lower")
def _case(expression: Expression, args: list[Value], scope: Scope) -> Value:
    """By Spark's own table, whatever edition of Unicode this Python knows."""
    _all_text(expression)
    table = {ord(one): other for one, other in expression.said("table")}
    if expression.op == "Upper":
        return null_safe(args, lambda text: text.upper() if text.isascii() else text.translate(table))
    said = expression.text
    return null_safe(args, lambda text: text.lower() if text.isascii() else _lower(text, table, said))


def _lower(text: str, table: dict[int, str], said: str) -> str:
    """A capital sigma at the end of a word becomes another letter than elsewhere; where words end Python knows."""
    made = text.translate(table)
    if _SIGMA in text:
        unknown = next((one for one in text if one in _DISPUTED or unicodedata.category(one) == "Cn"), None)
        if unknown is not None:
            raise EvaluationError(f"{said}: it is not known whether a word ends at {unknown!r}")
        lowered, letters = text.lower(), list(made)
        for at in (at for at, one in enumerate(text) if one == _SIGMA):
            letters[len(text[:at].translate(table))] = lowered[len(text[:at].lower())]
        made = "".join(letters)
    return made


@evaluates("Ascii")
def _ascii(expression: Expression, args: list[Value], scope: Scope) -> Value:
    need(expression, expression.args[0].kind == "string" and expression.kind in INTEGERS)
    return null_safe(args, lambda text: ord(text[0]) if text else 0)
