"""Strikes where the victim runs: on this host by itself, on another by the replica service there.

Which process plays a role at the moment is asked of all servers of the query: after a failover an instance is on
another one. On the host where it was found the server there is asked again (`clonos_standby.server.strike`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from clonos.errors import ConfigurationError
from clonos.tools.inject.plan import Action, Server, Strike, Target
from clonos.tools.live_query import LiveQuery, LiveServer
from clonos.wire.boundary import read_token
from clonos.wire.replica_client import ReplicaClient
from clonos.wire.server_status import ServerStatus
from clonos.wire.strikes import FaultCommand, Kind, NoProcess
from clonos_standby.server import strike as local


def strike(query: LiveQuery, what: Strike, say: Callable[[str], None]) -> None:
    """Do it, and `say` what has been done. Raises NoProcess, NotRunning, ConfigurationError, Unreachable."""
    command, name = what.command, str(what.target)
    server = _where(query, what.target, command)
    done = _there(query, server, command, name) if server.place else _here(server, command, name)
    for text in done:
        say(text)


@contextlib.contextmanager
def hold(query: LiveQuery, target: Target) -> Iterator[local.Held]:
    """The process of an instance, on this host."""
    command = Strike(0.0, Action(Kind.KILL), target).command
    server = _where(query, target, command)
    if server.place:
        raise NoProcess(f"{target} is on {server.place} now")
    with local.hold(lambda: local.pid_of(_status(server), command, str(target)), str(target)) as held:
        yield held


def _where(query: LiveQuery, target: Target | Server, command: FaultCommand) -> LiveServer:
    """The server that is the victim, or that runs it."""
    if isinstance(target, Server):
        for number, server in enumerate(query.servers):
            if server.place == target.place and (target.place or number == target.number):
                return server
        raise NoProcess(f"the query does without {target} now")
    statuses = query.statuses()
    every = [replica for _, said in statuses for replica in said["replicas"]]
    found = local.playing(every, command.origin, standby=target.standby)
    if found is None:
        raise NoProcess(f"{target} has no process now")
    return next(server for server, said in statuses if any(one is found for one in said["replicas"]))


def _here(server: LiveServer, command: FaultCommand, name: str) -> Iterator[str]:
    assert server.data is not None, "it is on this host"
    return local.strike(command, lambda: _status(server), server.data, name)


def _there(query: LiveQuery, server: LiveServer, command: FaultCommand, name: str) -> Iterator[str]:
    if not server.entry.token_file:
        raise ConfigurationError(
            f"the query does not say where the token of the service at {server.place} is"
        )
    token = read_token(Path(server.entry.token_file))
    client = ReplicaClient(server.entry.place, token, server.entry.tls)
    try:
        for text in client.strike(query.query, command, name):
            yield f"{text} (on {server.place})"
    finally:
        client.close()


def _status(server: LiveServer) -> ServerStatus:
    try:
        return server.status()
    except OSError as error:
        raise NoProcess(f"its server does not answer: {error}") from None
