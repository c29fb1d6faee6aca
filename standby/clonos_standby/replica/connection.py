"""A replica's end of the conduit connection.

Frames go out from two threads: the instance's own, and the one that shows that the process lives. A lock keeps them
whole. A conduit that is gone shows as `ConduitGone`, whichever call finds out.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable

from clonos.errors import ClonosError, ProtocolError
from clonos.wire.framing import Frame, FrameReader, FrameType, Packed, send_frames


class ConduitGone(ClonosError):
    """The conduit's connection has ended; another may come."""


class Connection:
    """Frames over one blocking stream socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.setblocking(True)
        self._reader = FrameReader()
        self._ready: deque[Frame] = deque()
        self._lock = threading.Lock()
        self.deaf = False
        """Whether the peer may have stopped to listen: what cannot be sent is not missed."""

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def buffered(self) -> bool:
        """Whether a frame can be had without reading from the socket."""
        return bool(self._ready)

    @property
    def buffered_type(self) -> FrameType | None:
        """That of the frame that `next` gives without reading from the socket."""
        return self._ready[0].type if self._ready else None

    def next(self) -> Frame:
        """The next frame; waits for it."""
        while not self._ready:
            try:
                self._ready.extend(self._reader.receive(self._sock))
            except OSError as error:
                raise ConduitGone(f"the conduit is gone: {error}") from error
            except ProtocolError as error:
                if self._reader.eof:
                    raise ConduitGone("the conduit is gone in the middle of a frame") from error
                raise
            if self._reader.eof and not self._ready:
                raise ConduitGone("the conduit has closed the connection")
        return self._ready.popleft()

    def next_of(self, kind: FrameType) -> Frame:
        """The next frame of this type; waits for it. Those before it keep their turn."""
        before: deque[Frame] = deque()
        try:
            while (frame := self.next()).type is not kind:
                before.append(frame)
            return frame
        finally:
            self._ready.extendleft(reversed(before))

    def send(self, *frames: Packed) -> None:
        try:
            with self._lock:
                send_frames(self._sock, frames)
        except OSError as error:
            if not self.deaf:
                raise ConduitGone(f"the conduit is gone: {error}") from error

    def close(self) -> None:
        """Also for the supervisor, which holds the connection, too."""
        with contextlib.suppress(OSError):  # it has ended already
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


class Heartbeat:
    """Shows, while it runs, that the process lives and how far it has come; `look` may find that it gets nowhere."""

    def __init__(self, connection: Connection, period: float, look: Callable[[], None]) -> None:
        self._connection = connection
        self._look = look
        self._period = period
        self._done = threading.Event()
        self.progress = 0
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        from clonos.wire.messages import pack_heartbeat

        while not self._done.wait(self._period):
            self._look()
            try:
                self._connection.send(pack_heartbeat(self.progress))
            except ConduitGone:
                return

    def stop(self) -> None:
        self._done.set()
        self._thread.join()
