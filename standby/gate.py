"""The end of TLS in front of a replica server, as a process of its own beside it.

    python -m standby.gate --spec FILE --to SOCKET --host HOST --port N --parent PID

The server hands open connections on to its replicas, which a TLS session, being the memory of one process, does not
survive. So the session ends here, and the bytes go on over the server's own socket. Who has no certificate of the
authority is refused by the handshake and never gets that far. It tells its address in one line of JSON on stdout and
ends when its stdin does or its parent dies.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import ssl
import sys
from collections.abc import Sequence
from typing import Any

from clonos.errors import ClonosError, ConfigurationError
from clonos.wire.tls import Tls
from standby.loop import log
from standby.processes import die_with_parent, raise_descriptor_limit
from standby.server import bind_tcp, read_spec

_CHUNK = 256 * 1024
_HANDSHAKE_SECONDS = 10.0
_HANDSHAKES = 256


class Gate:
    """Copies between TLS connections and the server's socket, each way as fast as the slower end takes it."""

    def __init__(self, target: str, context: ssl.SSLContext) -> None:
        self._target = target
        self._context = context
        self._handshakes = asyncio.Semaphore(_HANDSHAKES)
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        while True:
            await self._handshakes.acquire()
            try:
                sock, peer = await loop.sock_accept(listener)
            except OSError as error:
                log(f"cannot accept for the moment: {error}")
                self._handshakes.release()
                await asyncio.sleep(0.1)
                continue
            task = loop.create_task(self._greet(sock, peer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _greet(self, sock: socket.socket, peer: tuple[Any, ...]) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(_CHUNK)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, sock, ssl=self._context, ssl_handshake_timeout=_HANDSHAKE_SECONDS
            )
        except OSError as error:  # those of ssl are of this kind too
            log(f"a connection from {peer[0]} was refused: {error or 'it went away'}")
            sock.close()
            return
        finally:
            self._handshakes.release()
        await self._pass_on(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_unix_connection(self._target, limit=_CHUNK)
        except OSError:  # the server is just starting again; the conduit tries again as well
            writer.transport.abort()
            return
        # Whichever way ends first ends both: neither a conduit nor a replica has anything to say after that.
        ways = [
            asyncio.create_task(_copy(reader, inner_writer)),
            asyncio.create_task(_copy(inner_reader, writer)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for end in (writer, inner_writer):
            end.close()
        for end in (writer, inner_writer):
            with contextlib.suppress(OSError):
                await end.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()


async def _run(listener: socket.socket, target: str, context: ssl.SSLContext) -> None:
    serving = asyncio.create_task(Gate(target, context).serve(listener))
    os.set_blocking(0, False)
    asyncio.get_running_loop().add_reader(0, _read_end, serving)
    os.write(1, json.dumps({"address": "{}:{}".format(*listener.getsockname()[:2])}).encode() + b"\n")
    with contextlib.suppress(asyncio.CancelledError):
        await serving


def _read_end(serving: asyncio.Task[None]) -> None:
    with contextlib.suppress(BlockingIOError):
        if not os.read(0, 4096):
            serving.cancel()


def parse_options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m standby.gate", description=__doc__)
    parser.add_argument("--spec", required=True, help="msgpack file with the query's spec")
    parser.add_argument("--to", required=True, help="the replica server's socket")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at")
    parser.add_argument("--port", type=int, default=0, help="port to listen at; 0 takes a free one")
    parser.add_argument("--parent", type=int, help="end when this process is not the parent any more")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_options(argv)
    if options.parent is not None:
        die_with_parent(options.parent)
    raise_descriptor_limit()
    try:
        tls = Tls.from_dict(read_spec(options.spec).get("tls"))
        if tls is None:
            raise ConfigurationError(f"the spec file {options.spec} names no TLS files")
        context = tls.server_context()
        listener = bind_tcp(f"{options.host}:{options.port}")
    except ClonosError as error:
        log(str(error))
        return 2
    asyncio.run(_run(listener, options.to, context))
    return 0


if __name__ == "__main__":
    sys.exit(main())
