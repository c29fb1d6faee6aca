"""The command `clonos`: finds the subcommand's module, hands it the arguments, turns errors into exit codes.

A subcommand is a module with `add_arguments(parser)` and `run(arguments) -> int`. It is imported only when it
is the one asked for, so `clonos --help` starts nothing, and it is listed only when its module is there.
Exit codes: 0 done, 1 an error this library explains, 2 wrong usage, 3 no running query where one is needed, 130
interrupted, 129 or 143 ended by SIGHUP or SIGTERM (`clonos.ending`).

What it says always fits into the standard output's encoding: what has no character there is escaped. Where the output
does not take it, as on a full disk, that is an error; where its reader has gone, the command ends with 0.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import io
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from types import ModuleType

from clonos._version import __version__
from clonos.ending import Ended, ended_by_signals
from clonos.errors import ClonosError, NotRunning
from clonos.extras import EXTRAS, missing


@dataclass(frozen=True, slots=True)
class Command:
    """One subcommand: its name, the module that carries it, one line about it."""

    name: str
    module: str
    help: str

    def exists(self) -> bool:
        """Whether the module is installed; only its parent packages are imported to find out."""
        try:
            return importlib.util.find_spec(self.module) is not None
        except ModuleNotFoundError:
            return False


COMMANDS = (
    Command("demo", "clonos.tools.demo.command", "a causal query, failures injected, and its output judged"),
    Command("doctor", "clonos.tools.doctor", "check whether this machine has what a causal query needs"),
    Command("standby", "clonos_standby.service.command", "run a replica server on this host"),
    Command("status", "clonos.tools.status", "what a query's coordinator and replicas are doing"),
    Command("serve", "clonos.tools.serve", "queries in a browser, live, with what to do next"),
    Command(
        "checkpoint",
        "clonos.tools.checkpoint",
        "what a checkpoint is bound to, what a program would change",
    ),
    Command("log", "clonos.tools.log", "read and check causal logs, and run a function on a dead letter"),
    Command("archive", "clonos.tools.archive", "what is kept of past epochs, and whether it can be repeated"),
    Command("explain", "clonos.tools.explain", "why a row says what it says, back to the sources"),
    Command(
        "lineage",
        "clonos.tools.lineage",
        "which records a row was made of, and which rows a record went into",
    ),
    Command(
        "replay",
        "clonos.tools.replay",
        "stop in a function at a past record, or run another one over the past",
    ),
    Command("export", "clonos.tools.export", "past calls of functions as files that pytest tries again"),
    Command("state", "clonos.tools.state", "keyed state as it was, out of the archive"),
    Command(
        "classify",
        "clonos.tools.classify",
        "find out what a function depends on, and which recovery suffices for it",
    ),
    Command("inject", "clonos.tools.inject", "make a part of a running query fail"),
    Command("kafka", "clonos.tools.kafka", "fetch Spark's connector for Kafka"),
    Command("simulate", "clonos.sim.command", "run the protocol under seeded schedules and faults"),
    Command("bench", "clonos.tools.bench.command", "measure what causal logging costs"),
)


_REPEATING = frozenset({"archive", "explain", "lineage", "export", "replay", "state"})
"""Run users' functions again as replicas did."""
_RUN_FUNCTIONS = _REPEATING | {"classify", "log"}
"""Run users' functions."""


def _fix_hash_seed() -> None:
    """Replicas have one, so that what iterates over a set of strings does so alike in all of them."""
    if sys.flags.hash_randomization and os.environ.get("PYTHONHASHSEED") != "0":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until the command begins once more
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})


def build_parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser for these arguments: every subcommand by name, the chosen one with its own options."""
    parser = argparse.ArgumentParser(
        prog="clonos", description="Causal logging for Spark Structured Streaming.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"clonos {__version__}")
    commands = parser.add_subparsers(metavar="<subcommand>", required=True)
    chosen = next((argument for argument in arguments if not argument.startswith("-")), None)
    for command in COMMANDS:
        if not command.exists():
            continue
        sub = commands.add_parser(
            command.name, help=command.help, description=command.help.capitalize() + "."
        )
        if command.name == chosen:
            module = _imported(command)
            module.add_arguments(sub)
            sub.set_defaults(run=module.run)
    return parser


def _imported(command: Command) -> ModuleType:
    """Raises ConfigurationError where a package is missing that can be installed for it."""
    try:
        return importlib.import_module(command.module)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        extra = "demo" if command.name in ("demo", "bench") else None
        raise missing(package, f"`clonos {command.name}`", extra) from error


class _OutputFailed(OSError):
    """The standard output does not take what is written."""


class _Output(io.TextIOWrapper):
    """The standard output, whose errors are told from others."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise _told_from_others(error) from error

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise _told_from_others(error) from error


def _told_from_others(error: OSError) -> OSError:
    return error if isinstance(error, BrokenPipeError) else _OutputFailed(error.errno, error.strerror)


def _prepare_output() -> None:
    """What tests have in its place is left as it is."""
    out = sys.stdout
    if out is None:  # it is closed: what is opened next must not become it
        sys.stdout = open(os.devnull, "w", errors="backslashreplace")  # noqa: SIM115 - it stays open
    elif type(out) is io.TextIOWrapper:
        sys.stdout = _Output(
            out.buffer,
            encoding=out.encoding,
            errors="backslashreplace",
            line_buffering=out.line_buffering,
            write_through=out.write_through,
        )


def _discard_output() -> None:
    """It is not written at the end of the process, either."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    _prepare_output()
    given = sys.argv[1:] if arguments is None else list(arguments)
    if arguments is None and given and given[0] in _REPEATING:
        _fix_hash_seed()
    runs_functions = bool(given) and given[0] in _RUN_FUNCTIONS
    try:
        if arguments is None and runs_functions:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # `_fix_hash_seed`
        with ended_by_signals() if runs_functions else nullcontext():
            parsed = build_parser(given).parse_args(given)
            code: int = parsed.run(parsed)
            sys.stdout.flush()
    except Ended as ended:
        for line in ended.said:
            print(line, file=sys.stderr)
        return ended.code
    except ClonosError as error:
        print(f"clonos: {type(error).__name__}: {error}", file=sys.stderr)
        return 3 if isinstance(error, NotRunning) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader, say `head`, has seen enough
        _discard_output()
        return 0
    except _OutputFailed as error:
        _discard_output()
        print(f"clonos: the standard output cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
