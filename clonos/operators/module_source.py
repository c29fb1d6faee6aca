"""What the source of a module says of a name: which of its top-level statements bind it, and which names these load.

It is read off the syntax tree, not off values: a value may be another one in every process (`START = time.time()`),
while the statement that gives it is the same. Comments, positions, docstrings and annotations of functions do not
count. Each module is parsed once.
"""

from __future__ import annotations
import __future__

import ast
import dis
import importlib.util
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from types import CodeType, ModuleType
from typing import Any, Final, TypeAlias

Chain: TypeAlias = tuple[str, ...]
"""A global name, and the attributes that are asked of it: `pkg.mod.fn`."""

_LOADS: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_ATTRIBUTES: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_Imports: TypeAlias = ast.Import | ast.ImportFrom


@dataclass(frozen=True)
class Statement:
    """One that binds a name, or changes what it is bound to, with what decides on the way whether it is run."""

    parts: tuple[ast.AST, ...]

    @cached_property
    def said(self) -> str:
        """What counts of it."""
        return "\n".join(ast.dump(_plain(each)) for each in self.parts)

    @cached_property
    def names(self) -> list[Chain]:
        """That it loads when it is run, or that functions in it load."""
        return list(dict.fromkeys(names_of(self._code)))

    def defined(self, name: str) -> list[CodeType]:
        """Of a function that it defines."""
        inside = (each for each in self._code.co_consts if isinstance(each, CodeType))
        return [each for each in inside if each.co_name == name]

    @cached_property
    def _code(self) -> CodeType:
        assert self.said  # what does not count is taken away
        body = [each if isinstance(each, ast.stmt) else _alone(each) for each in self.parts]
        module = ast.fix_missing_locations(ast.Module(body, []))
        flags = __future__.annotations.compiler_flag
        found: CodeType = compile(module, "<source>", "exec", flags, dont_inherit=True)
        return found


@dataclass(frozen=True, slots=True)
class Imported:
    """A name that is another module, or that another module has under the name `own`."""

    module: str
    own: str | None


@dataclass(frozen=True, slots=True)
class ModuleSource:
    """By name, what binds it, in order; `stars` are modules of which all names are imported."""

    bound: dict[str, list[Statement | Imported]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)


_known: Final[dict[str, tuple[Any, ModuleSource | None]]] = {}


def source_of(module: ModuleType) -> ModuleSource | None:
    """None where it cannot be read."""
    spec = getattr(module, "__spec__", None)
    known = _known.get(module.__name__)
    if known is None or known[0] is not spec:  # it was loaded anew
        known = _known[module.__name__] = spec, _read(module, spec)
    return known[1]


def names_of(code: CodeType, *, is_outermost: bool = True) -> Iterator[Chain]:
    """The global names that a code loads, and the code within it, each with the attributes that are asked of it."""
    own: frozenset[str] = frozenset()
    if not is_outermost:  # the body of a class finds its own names first
        own = frozenset(step.argval for step in dis.get_instructions(code) if step.opname == "STORE_NAME")
    yield from (each for each in _chains(code, _LOADS) if each[0] not in own)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_of(constant, is_outermost=False)


def code_said(code: CodeType) -> str:
    """What counts of a code: neither a docstring, nor where constants stand."""
    steps = [(step.opname, _argument_said(step)) for step in dis.get_instructions(code)]
    return repr((steps, code.co_exceptiontable, code.co_varnames, code.co_freevars))


def _argument_said(step: dis.Instruction) -> str:
    if isinstance(step.argval, CodeType):
        return code_said(step.argval)
    if isinstance(step.argval, frozenset):
        return repr(sorted(map(repr, step.argval)))
    return repr(step.argval)


def enclosed_names_of(code: CodeType) -> Iterator[Chain]:
    """The same of names that a function closes over."""
    return _chains(code, frozenset({"LOAD_DEREF"}))


def _chains(code: CodeType, loads: frozenset[str]) -> Iterator[Chain]:
    chain: Chain = ()
    for step in dis.get_instructions(code):
        if chain and step.opname in _ATTRIBUTES:
            chain = (*chain, step.argval)
            continue
        if chain:
            yield chain
        chain = (step.argval,) if step.opname in loads else ()
    if chain:
        yield chain


def _read(module: ModuleType, spec: Any) -> ModuleSource | None:
    read = getattr(getattr(spec, "loader", None), "get_source", None)
    if read is None:
        return None
    try:
        text = read(module.__name__)
        tree = None if text is None else ast.parse(text)  # files of byte code alone have none
    except (ImportError, OSError, SyntaxError, ValueError, RecursionError):
        tree = None
    if tree is None:
        return None
    found = ModuleSource()
    for statement in tree.body:
        _take(statement, (), found, getattr(module, "__package__", None) or "")
    return found


def _take(statement: ast.stmt, around: tuple[ast.AST, ...], found: ModuleSource, package: str) -> None:
    """What a statement binds, and those within it."""
    match statement:
        case ast.Import() | ast.ImportFrom():
            _take_import(statement, found, package)
            return
        case ast.If(test=test) | ast.While(test=test):
            around = (*around, test)
        case ast.For(target=target, iter=iterated) | ast.AsyncFor(target=target, iter=iterated):
            around = (*around, iterated)
            _bind(_roots([target]), (*around, target), found)
        case ast.With(items=items) | ast.AsyncWith(items=items):
            around = (*around, *(each.context_expr for each in items))
            _bind(_roots(each.optional_vars for each in items), around, found)
        case ast.Match(subject=subject):
            around = (*around, subject)
        case _ if isinstance(statement, _DEFINITIONS):
            _bind([statement.name], (*around, statement), found)
            return
        case _:
            _bind(_changed_by(statement), (*around, statement), found)
    for each in _within(statement):
        _take(each, around, found, package)


def _within(statement: ast.stmt) -> Iterator[ast.stmt]:
    for blocks in ("body", "orelse", "finalbody"):
        yield from getattr(statement, blocks, ())
    for branch in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield from branch.body


def _changed_by(statement: ast.stmt) -> Iterator[str]:
    """Names of which a simple statement makes something else: also by `TABLE[k] = v`, and by `TABLE.update(...)`."""
    match statement:
        case ast.Assign(targets=targets):
            return _roots(targets)
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            return _roots([target])
        case ast.Expr(value=ast.Call(func=ast.Attribute() as called)):
            return _roots([called])
    return iter(())


def _roots(targets: Iterable[ast.expr | None]) -> Iterator[str]:
    for target in targets:
        match target:
            case ast.Name(id=name):
                yield name
            case ast.Attribute(value=inner) | ast.Subscript(value=inner) | ast.Starred(value=inner):
                yield from _roots([inner])
            case ast.Tuple(elts=inner) | ast.List(elts=inner):
                yield from _roots(inner)


def _bind(names: Iterable[str], parts: tuple[ast.AST, ...], found: ModuleSource) -> None:
    statement = Statement(parts)
    for name in dict.fromkeys(names):
        found.bound.setdefault(name, []).append(statement)


def _take_import(statement: _Imports, found: ModuleSource, package: str) -> None:
    if isinstance(statement, ast.Import):
        for each in statement.names:
            name = each.asname or each.name.partition(".")[0]
            found.bound.setdefault(name, []).append(Imported(each.name, None))
        return
    module = statement.module or ""
    if statement.level:
        with suppress(ImportError):
            module = importlib.util.resolve_name("." * statement.level + module, package)
    for each in statement.names:
        if each.name == "*":
            found.stars.append(module)
        else:
            found.bound.setdefault(each.asname or each.name, []).append(Imported(module, each.name))


def _alone(part: ast.AST) -> ast.stmt:
    """An expression as a statement, for the names that it loads; a target loads none."""
    assert isinstance(part, ast.expr)
    is_target = isinstance(getattr(part, "ctx", None), ast.Store)
    return ast.Pass() if is_target else ast.Expr(part)


def _plain(node: ast.AST) -> ast.AST:
    """The node, without what does not count: docstrings, and annotations of functions."""
    for each in ast.walk(node):
        if isinstance(each, _DEFINITIONS) and ast.get_docstring(each, clean=False) is not None:
            each.body = each.body[1:] or [ast.Pass()]
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            each.returns = None
        elif isinstance(each, ast.arg):
            each.annotation = None
    return node
