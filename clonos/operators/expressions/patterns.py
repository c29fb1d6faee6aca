"""LIKE and RLIKE with a pattern that is a literal.

A regular expression of Java is translated where both languages are known to say the same; what is not known is refused.
Whether there is a match does not depend on the order in which one is looked for.
"""

from __future__ import annotations

import re
from typing import Final

from clonos.operators.expressions.compiled import Scope, Value, evaluates, literal
from clonos.operators.expressions.kinds import need
from clonos.operators.expressions.texts import null_safe
from clonos.operators.expressions.tree import Expression, Unsupported

_ENDS: Final = "\n\r\u0085\u2028\u2029"
_ANY: Final = f"[^{_ENDS}]"
_END: Final = "(?=(?:\r\n|(?<!\r)\n|[\r\u0085\u2028\u2029])?\\Z)"
_CLASSES: Final = {
    "d": "0-9",
    "w": "a-zA-Z_0-9",
    "s": " \\t\\n\\x0B\\f\\r",
}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_PLAIN_IN_CLASS: Final = re.compile(r"[A-Za-z0-9_ ,.:;@#%/+*=!?<>()~'\"]")
_QUANTIFIER: Final = re.compile(r"(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})\??")


@evaluates("Like")
def _like(expression: Expression, args: list[Value], scope: Scope) -> Value:
    need(expression, all(arg.kind == "string" for arg in expression.args))
    pattern = literal(expression.args[1])
    if pattern is None:
        return lambda row: None
    found = re.compile(_of_like(pattern, expression.said("escape"), expression), re.DOTALL)
    return null_safe(args[:1], lambda text: found.fullmatch(text) is not None)


def _of_like(pattern: str, escape: str, expression: Expression) -> str:
    made: list[str] = []
    left = iter(pattern)
    for one in left:
        if one == escape:
            after = next(left, None)
            need(expression, after is not None and after in ("_", "%", escape), "its pattern is not valid")
            made.append(re.escape(str(after)))
        else:
            made.append({"_": ".", "%": ".*"}.get(one) or re.escape(one))
    return "".join(made)


@evaluates("RLike")
def _rlike(expression: Expression, args: list[Value], scope: Scope) -> Value:
    need(expression, all(arg.kind == "string" for arg in expression.args))
    pattern = literal(expression.args[1])
    if pattern is None:
        return lambda row: None
    try:
        found = re.compile(_Java(pattern, expression).translated())
    except re.error:
        raise Unsupported(expression, "Python knows no such regular expression") from None
    return null_safe(args[:1], lambda text: found.search(text) is not None)


class _Java:
    """A reader of the regular expressions that are taken."""

    def __init__(self, pattern: str, expression: Expression) -> None:
        self._pattern = pattern
        self._expression = expression
        self._at = 0

    def translated(self) -> str:
        made = self._alternatives()
        self._need(self._at == len(self._pattern))
        return made

    def _need(self, fits: bool) -> None:
        need(self._expression, fits, "of its regular expression not all is known to mean the same in Python")

    def _next(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _take(self) -> str:
        one = self._next()
        self._need(bool(one))
        self._at += 1
        return one

    def _alternatives(self) -> str:
        parts = [self._sequence()]
        while self._next() == "|":
            self._at += 1
            parts.append(self._sequence())
        return "|".join(parts)

    def _sequence(self) -> str:
        made = []
        while self._next() not in ("", "|", ")"):
            atom, repeats = self._atom()
            quantifier = _QUANTIFIER.match(self._pattern, self._at)
            if quantifier is not None:
                self._need(repeats)
                self._at = quantifier.end()
                atom += quantifier[0]
            self._need(self._next() not in ("*", "+", "?", "{"))
            made.append(atom)
        return "".join(made)

    def _atom(self) -> tuple[str, bool]:
        """And whether it may be repeated."""
        one = self._take()
        if one == "^":
            return r"\A", False
        if one == "$":
            return _END, False
        if one == ".":
            return _ANY, True
        if one == "[":
            return self._class(), True
        if one == "(":
            if self._next() == "?":
                self._at += 1
                self._need(self._take() == ":")
            inner = self._alternatives()
            self._need(self._take() == ")")
            return f"(?:{inner})", True
        if one == "\\":
            return self._escaped(), True
        self._need(one not in "*+?{}]")
        return re.escape(one), True

    def _escaped(self) -> str:
        one = self._take()
        if one in _CLASSES:
            return f"[{_CLASSES[one]}]"
        if one.lower() in _CLASSES:
            return f"[^{_CLASSES[one.lower()]}]"
        if one in _CONTROLS:
            return re.escape(_CONTROLS[one])
        self._need(one.isascii() and not one.isalnum())
        return re.escape(one)

    def _class(self) -> str:
        """Letters, digits, some signs, ranges of them, and classes."""
        made = "["
        if self._next() == "^":
            self._at += 1
            made += "^"
        empty = True
        while (one := self._take()) != "]" or empty:
            empty = False
            if one == "\\":
                made += self._in_class_escaped()
                continue
            self._need(_PLAIN_IN_CLASS.fullmatch(one) is not None)
            made += re.escape(one)
            if self._next() == "-":
                self._at += 1
                last = self._take()
                self._need(one.isalnum() and last.isalnum() and last.isascii() and one <= last)
                made += "-" + last
        return made + "]"

    def _in_class_escaped(self) -> str:
        one = self._take()
        if one in _CLASSES:
            return _CLASSES[one]
        if one in _CONTROLS:
            return re.escape(_CONTROLS[one])
        self._need(one.isascii() and not one.isalnum())
        return re.escape(one)
