"""What a function claims of itself: on what, beside its records, its rows and its state depend.

A claim is looked at where the function is given to an operator. One of hidden nondeterminism makes a query be refused
whose recovery would repeat the function (`clonos.spark.recovery_choice`). One of determinism is held against the
function while it runs: whatever it asks of the services that could come out differently a second time, it asks for
against its word. What it reads without them no service sees: that a replay finds out (invariant I10), and
`clonos classify` before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

from clonos.errors import PurityError, QueryDefinitionError
from clonos.protocol.operator import Operator, Services
from clonos.protocol.recovery.dependence import Determinism

_MARK: Final = "__clonos_claim__"
_METHODS: Final = ("__call__", "handleInputRows", "handleExpiredTimer", "handleInitialState")
BELIED: Final = "claims to be deterministic, and asks for"
"""As errors say it of a function."""
F = TypeVar("F", bound=Callable[..., Any])


def claim(what: str) -> Callable[[F], F]:
    """A decorator of functions and processors: `@clonos.claim("hidden")`. `what` is "deterministic": the same records
    in the same order and bundles give the same; "recorded": but for what it asks `ctx` for, which is what is believed
    of a function that claims nothing; "hidden": it depends on what nothing records, as a clock of its own.

    Raises QueryDefinitionError."""
    try:
        claimed = Determinism(what)
    except ValueError:
        raise QueryDefinitionError(
            f"a function cannot claim to be {what!r}",
            hint=f"Say one of {', '.join(repr(each.value) for each in Determinism)}",
        ) from None

    def marked(function: F) -> F:
        unbound = function.__func__ if isinstance(function, staticmethod | classmethod) else function
        try:
            setattr(unbound, _MARK, claimed)
        except AttributeError:
            raise QueryDefinitionError(
                f"{function!r} cannot be marked with what it claims",
                hint="Write @clonos.claim(...) where the function or the method is defined, or give one that calls it",
            ) from None
        return function

    return marked


def claimed_by(functions: Iterable[Any]) -> Determinism:
    """Of an operator made of these; None among them are none."""
    return _weakest([_claim_of(each) for each in functions if each is not None])


def innermost(function: Any) -> Any:
    """What partials of it call in the end."""
    while isinstance(function, partial):
        function = function.func
    return function


def _claim_of(function: Any) -> Determinism:
    """Of one: a function, what a partial calls, or a processor or callable object, of which the class may claim
    something, or its methods: then the weakest of theirs."""
    function = innermost(function)
    own: Determinism | None = getattr(function, _MARK, None)
    if own is not None:
        return own
    kind = function if isinstance(function, type) else type(function)
    return _weakest([getattr(method, _MARK, Determinism.RECORDED) for method in _methods_of(kind)])


def _methods_of(kind: type) -> Iterator[Any]:
    """Those that are the user's: a base class of Spark's claims nothing."""
    own = [base for base in kind.__mro__ if base.__module__.partition(".")[0] not in ("builtins", "pyspark")]
    for name in _METHODS:
        found = next((vars(base)[name] for base in own if name in vars(base)), None)
        if found is not None:
            yield found


def _weakest(claims: Sequence[Determinism]) -> Determinism:
    if Determinism.HIDDEN in claims:
        return Determinism.HIDDEN
    is_deterministic = bool(claims) and all(each is Determinism.DETERMINISTIC for each in claims)
    return Determinism.DETERMINISTIC if is_deterministic else Determinism.RECORDED


class Deterministic:
    """Makes an operator whose functions claim to be deterministic. Where they are not, it raises PurityError."""

    def __init__(self, make: Callable[[], Operator], name: str) -> None:
        self._make = make
        self._name = name

    def __call__(self) -> Operator:
        operator = self._make()
        opened = operator.open

        def open_(services: Services) -> None:
            opened(_Held(services, self._name))

        operator.open = open_  # type: ignore[method-assign]
        return operator


class _Held:
    """The services, but for those whose answer does not follow from the records."""

    def __init__(self, services: Services, name: str) -> None:
        self._services = services
        self._name = name
        self.random = _Refused(name, "random numbers")
        self.timers = _Refused(name, "timers of processing time")

    def __getattr__(self, service: str) -> Any:
        return getattr(self._services, service)

    def clock(self) -> NoReturn:
        _refuse(self._name, "the time")

    def exact_clock(self) -> NoReturn:
        _refuse(self._name, "the time")

    def call(self, *asked: Any) -> NoReturn:
        _refuse(self._name, "a call")

    def begin_call(self, *asked: Any) -> NoReturn:
        _refuse(self._name, "a call")

    def effect(self, *asked: Any) -> NoReturn:
        _refuse(self._name, "an effect")


class _Refused:
    def __init__(self, name: str, what: str) -> None:
        self._name = name
        self._what = what

    def __getattr__(self, service: str) -> NoReturn:
        if service.startswith("__"):
            raise AttributeError(service)
        _refuse(self._name, self._what)


def _refuse(name: str, what: str) -> NoReturn:
    raise PurityError(
        f"{name!r} {BELIED} {what}",
        hint="Claim 'recorded', or nothing: what it asks ctx for is recorded",
    )
