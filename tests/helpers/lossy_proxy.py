"""A TCP proxy that loses what a test tells it to: a request, or its answer."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable


class LossyProxy:
    """In front of a server on this host. `target` may be changed while it runs."""

    def __init__(
        self, target: int, of: bytes, *, hidden: bytes = b"", seen: Callable[[bytes], object] = len
    ) -> None:
        """`of` is what a request has in it that may be lost. `hidden`: a header that the server does not get to see.
        `seen` is given all that clients send."""
        self.target, self._of = target, of
        self._hidden, self._seen = hidden, seen
        self._losses: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)

    def lose(self, *what: str) -> None:
        """Of the next requests, one after the other: "request", "answer", or "nothing"."""
        self._losses += what

    @property
    def due(self) -> int:
        """How many losses have not come about yet."""
        return len(self._losses)

    def cut(self) -> None:
        """Close every connection that is open now."""
        for each in list(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        place = "127.0.0.1", self.target
        with client, contextlib.suppress(OSError), socket.create_connection(place) as server:
            self._open |= {client, server}
            try:
                self._pass_on(client, server)
            finally:
                self._open -= {client, server}

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        loss = "nothing"
        while True:
            ready, _, _ = select.select([client, server], [], [])
            if client in ready:
                data = client.recv(1 << 20)
                self._seen(data)
                if self._of in data and self._losses:
                    loss = self._losses.pop(0)
                if not data or loss == "request":
                    return
                server.sendall(data.replace(self._hidden, b"x" * len(self._hidden)))
            if server in ready:
                data = server.recv(1 << 20)
                if not data or loss == "answer":
                    return
                client.sendall(data)

    def __enter__(self) -> LossyProxy:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        self.cut()
        for each in self._threads:
            each.join()
