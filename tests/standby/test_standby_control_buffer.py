"""What came over the control line together with a connection is heard, also when nothing comes behind it."""

from __future__ import annotations

import socket
import threading
from typing import Any

from clonos.protocol.ids import Origin
from clonos.protocol.recovery.marker import Round
from clonos.protocol.recovery.rollback.rounds import Rounds
from clonos_standby.replica.process import Replica
from clonos_standby.server.control import pair
from clonos_standby.server.control_messages import Assign, RoundsSaid, pack_control


class Conduit:
    """It says nothing."""

    buffered = False

    def __init__(self) -> None:
        self._sock, self.other = socket.socketpair()

    def fileno(self) -> int:
        return self._sock.fileno()


class Heard:
    gives_way = False

    def __init__(self) -> None:
        self.rounds: list[Rounds] = []

    def hear_rounds(self, rounds: Rounds) -> Any:
        self.rounds.append(rounds)
        yield from ()


class NoWork:
    def wakeups(self) -> None:
        return None


def test_rounds_that_come_together_with_a_connection_are_heard() -> None:
    supervisor, line = pair()
    replica = Replica(line, "")
    supervisor.send(pack_control(Assign(Origin.of(2, 0))))  # as Connect: what is received first
    supervisor.send(pack_control(RoundsSaid(Rounds(begun=Round(1)))))
    assert line.receive() is not None
    session, conduit = Heard(), Conduit()
    replica._session = session  # type: ignore[assignment]
    waits = threading.Thread(target=replica._await, args=(conduit, NoWork(), session), daemon=True)
    waits.start()
    waits.join(10)
    assert [said.begun for said in session.rounds] == [1]
