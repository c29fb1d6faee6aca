"""The command `clonos inject`: one failure, or many at random."""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import time
from collections.abc import Iterator

from clonos.errors import NotRunning
from clonos.tools.inject.plan import Action, Server, Strike, Target, draw, servers, targets
from clonos.tools.inject.strike import strike
from clonos.tools.live_query import LiveQuery, find
from clonos.wire.replica_client import Unreachable
from clonos.wire.strikes import Kind, NoProcess

ANY, FIRST = "", "0"
"""Servers."""

SLOW_SECONDS = 10.0
RANDOM_SECONDS = 60.0
RETURN_SECONDS = 30.0
"""How long a random run waits for the replica server to be back."""

_LOOK_SECONDS = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `clonos inject`."""
    parser.add_argument("checkpoint", help="the query's checkpointLocation")
    what = parser.add_argument_group("what", "one of them; with --random those that are drawn from")
    what.add_argument("--kill", action="store_true", help="SIGKILL to the process of an instance or server")
    what.add_argument(
        "--stop",
        type=_positive,
        metavar="SECONDS",
        help="SIGSTOP, then SIGCONT: beyond spark.clonos.replica.deadline it is replaced",
    )
    what.add_argument(
        "--slow",
        type=_factor,
        metavar="FACTOR",
        help=f"let it run for one FACTORth of the time only, --for so long ({SLOW_SECONDS:g} s)",
    )
    what.add_argument(
        "--corrupt-log",
        action="store_true",
        help="damage its causal log on disk while it stands, and kill it",
    )
    what.add_argument(
        "--partition",
        type=_positive,
        metavar="SECONDS",
        help="with --server HOST:PORT: nothing there answers, for so long",
    )
    whom = parser.add_argument_group("whom", "with --random every process, unless it is said")
    whom.add_argument("--operator", metavar="NAME", help="an operator or the sink, by its name in the status")
    whom.add_argument("--instance", type=int, metavar="I", help="needed where there are several")
    whom.add_argument("--standby", action="store_true", help="its standby, not its primary")
    whom.add_argument(
        "--server",
        nargs="?",
        const=ANY,
        metavar="N|HOST:PORT",
        help="the replica server of this number, 0 if there is none given, or on that service; --kill is implied",
    )
    dice = parser.add_argument_group("at random")
    dice.add_argument(
        "--random",
        action="store_true",
        help="again and again; --kill and --stop 1 if nothing is given",
    )
    dice.add_argument(
        "--seed", type=int, metavar="S", help="the same choices again; default: another each time"
    )
    dice.add_argument("--every", type=_positive, metavar="SECONDS", default=5.0, help="default: %(default)g")
    dice.add_argument(
        "--for", type=_positive, metavar="SECONDS", dest="seconds", help=f"default: {RANDOM_SECONDS:g}"
    )
    parser.set_defaults(misused=parser.error)


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1e6:
        raise argparse.ArgumentTypeError(f"{text} is not a time in seconds")
    return value


def _factor(text: str) -> float:
    value = float(text)
    if not 1 < value <= 100:
        raise argparse.ArgumentTypeError(f"{text} is not a factor between 1 and 100")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Strike; 0 when everything that was to be done has been done."""
    if arguments.server is not None and (arguments.standby or arguments.operator is not None):
        arguments.misused("either a server is struck or an instance")
    actions = _actions(arguments)
    if arguments.random:
        return _at_random(arguments, actions)
    if len(actions) != 1:
        arguments.misused(
            "one of --kill, --stop, --slow, --corrupt-log and --partition is needed, or several with --random"
        )
    query = find(arguments.checkpoint)
    target: Target | Server
    if arguments.server is not None:
        target = servers(query.servers, arguments.server or FIRST)[0]
    elif arguments.operator is None:
        arguments.misused(
            f"--operator is needed, or --server: {', '.join(node.name for node in query.nodes)}"
        )
    else:
        among = targets(query.nodes, arguments.operator, arguments.instance, arguments.standby)
        if len(among) > 1:
            arguments.misused(f"--instance is needed: 0 to {len(among) - 1}")
        target = among[0]
    with _interruptible():
        strike(query, Strike(0.0, actions[0], target), _say)
    return 0


def _actions(arguments: argparse.Namespace) -> list[Action]:
    lasting = arguments.seconds if not arguments.random else arguments.every / 2
    found = []
    if arguments.kill:
        found.append(Action(Kind.KILL))
    if arguments.stop is not None:
        found.append(Action(Kind.STOP, arguments.stop))
    if arguments.slow is not None:
        found.append(Action(Kind.SLOW, lasting or SLOW_SECONDS, arguments.slow))
    if arguments.corrupt_log:
        found.append(Action(Kind.CORRUPT_LOG))
    if arguments.partition is not None:
        found.append(Action(Kind.PARTITION, arguments.partition))
    if not found and arguments.random:
        return [Action(Kind.KILL), Action(Kind.STOP, 1.0)]
    if not found and arguments.server is not None:
        return [Action(Kind.KILL)]
    return found


def _among(arguments: argparse.Namespace, query: LiveQuery) -> list[Target | Server]:
    """The targets and servers that a random run draws from."""
    if arguments.server is not None:
        return [*servers(query.servers, arguments.server)]
    chosen = query.nodes, arguments.operator, arguments.instance
    if arguments.standby or arguments.operator is not None or arguments.instance is not None:
        return [*targets(*chosen, arguments.standby)]
    standbys = targets(*chosen, True) if query.others else ()
    return [*targets(*chosen), *standbys, *servers(query.servers, ANY)]


def _at_random(arguments: argparse.Namespace, actions: list[Action]) -> int:
    seed = random.SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    query = find(arguments.checkpoint)
    strikes = draw(
        actions,
        _among(arguments, query),
        seed=seed,
        every=arguments.every,
        seconds=arguments.seconds or RANDOM_SECONDS,
    )
    _say(f"seed {seed}: {len(strikes)} strikes, one every {arguments.every:g} s")
    began = time.monotonic()
    with _interruptible():
        for each in strikes:
            time.sleep(max(0.0, began + each.at - time.monotonic()))
            query = _back(arguments.checkpoint)
            try:
                strike(query, each, _say)
            except (NoProcess, NotRunning, Unreachable) as error:
                _say(f"{each.action.kind.value} left out: {error}")
    return 0


def _back(checkpoint: str) -> LiveQuery:
    """The query; its server may have been killed a moment ago."""
    deadline = time.monotonic() + RETURN_SECONDS
    while True:
        try:
            query = find(checkpoint)
            query.status()
            return query
        except NotRunning:
            if time.monotonic() > deadline:
                raise
            time.sleep(_LOOK_SECONDS)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Being ended is being interrupted: what is stopped goes on first."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%SZ', time.gmtime())}  {text}", flush=True)
