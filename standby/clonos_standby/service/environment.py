"""Whether a query can run on another host as it runs at its driver.

A replica that takes over repeats what another one did, to the byte. So what has a say in that is compared before it is
let near: the release of Python, the libraries, the kind of machine, and the text of every module that a function is
named by. Functions of a script travel whole; those of modules travel as a name, and another text under the same name
would be found out only when it diverges.
"""

from __future__ import annotations

import hashlib
import pickletools
import platform
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata, util
from pathlib import Path
from typing import Any

from clonos._version import __version__
from clonos.wire.messages import VERSION as WIRE
from clonos_standby.cluster.spec_file import VERSION as SPEC

DISTRIBUTIONS = ("cloudpickle", "msgpack", "numpy", "pandas", "pyarrow", "pyspark", "rocksdict", "sqlalchemy")
ABSENT = "absent"
_OPTIONAL = frozenset({"pandas", "pyspark", "sqlalchemy"})
"""What the driver's query can do without: a host that has one of them, where the driver has none, is no other host."""
_IMPORT = ("cloudpickle.cloudpickle", "subimport")
_COMPARED = frozenset({"clonos", "standby", *DISTRIBUTIONS})


def environment() -> dict[str, str]:
    """What has to be the same everywhere, by name."""
    return {
        "clonos": __version__,
        "conduit wire": str(WIRE),
        "query spec": str(SPEC),
        "python": ".".join(map(str, sys.version_info[:2])),
        "implementation": platform.python_implementation(),
        "machine": platform.machine(),
        **{name: _version(name) for name in DISTRIBUTIONS},
    }


def modules_of(pickles: Iterable[bytes]) -> dict[str, str]:
    """Digests of the modules that pickled functions name, but for those whose release is compared anyway."""
    names: set[str] = set()
    for raw in pickles:
        names |= _named(raw)
    found = {name: digest(name) for name in sorted(names)}
    return {name: value for name, value in found.items() if value != ABSENT}  # made by the program itself


def digest(module: str) -> str:
    """The digest of a module's text; `absent` where there is no such module here."""
    try:
        found = util.find_spec(module)
        if found is None or found.origin is None:
            return ABSENT
        return hashlib.sha256(Path(found.origin).read_bytes()).hexdigest()
    except (ImportError, ValueError, AttributeError, OSError):
        return ABSENT


def differences(
    theirs: Mapping[str, str], ours: Mapping[str, str], their_modules: Mapping[str, str]
) -> list[str]:
    """What is not at it is at the driver, in words."""
    found = [
        f"{name} is {theirs.get(name, ABSENT)} at the driver and {ours.get(name, ABSENT)} here"
        for name in sorted(ours.keys() | theirs.keys())
        if theirs.get(name) != ours.get(name) and not (name in _OPTIONAL and theirs.get(name) == ABSENT)
    ]
    for name, wanted in their_modules.items():
        have = digest(name)
        if have == ABSENT:
            found.append(f"module {name}, which a function of the query needs, is not here")
        elif have != wanted:
            found.append(f"module {name} has digest {wanted[:12]} at the driver and {have[:12]} here")
    return found


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ABSENT


def _named(raw: bytes) -> set[str]:
    """Modules that a pickle takes something from by name, or imports as a whole."""
    found: set[str] = set()
    pushed: list[object] = []  # of what the pickle pushes, the texts and names; None for all else
    memo: list[object] = []
    argument: Any
    for opcode, argument, _ in pickletools.genops(raw):
        if opcode.name == "MEMOIZE":
            memo.append(pushed[-1] if pushed else None)
            continue
        if opcode.name in ("BINGET", "LONG_BINGET"):
            pushed.append(memo[argument])
        elif opcode.name in ("SHORT_BINUNICODE", "BINUNICODE"):
            if pushed and pushed[-1] == _IMPORT:
                found.add(argument)
            pushed.append(argument)
        elif opcode.name == "STACK_GLOBAL":
            module, name = pushed[-2:]
            found.add(str(module))
            pushed.append((module, name))
        else:
            pushed.append(None)
    return {name for name in found if not _ignored(name)}


def _ignored(name: str) -> bool:
    top = name.partition(".")[0]
    return top in _COMPARED or top in sys.stdlib_module_names or top == "__main__"
