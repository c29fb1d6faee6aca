"""An editor's end of the Debug Adapter Protocol, as far as tests attach to a process and look around in it."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from types import TracebackType
from typing import Any

PATIENCE_SECONDS = 300.0

Message = dict[str, Any]


class DebugClient:
    """Attached, and closed at the end of the `with`. What comes while something else is awaited is dropped."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), PATIENCE_SECONDS)
        self._messages = self._socket.makefile("rb")
        self._sent = 0

    def __enter__(self) -> DebugClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._messages.close()
        self._socket.close()

    def attach(self, *, just_my_code: bool) -> None:
        """Until the process goes on."""
        self.ask("initialize", adapterID="python", clientID="tests")
        # Is answered when the configuration is done
        attached = self._send("attach", {"justMyCode": just_my_code})
        self.event("initialized")
        self.ask("configurationDone")
        self._until(lambda said: said.get("request_seq") == attached)

    def stopped(self) -> list[Message]:
        """The frames of the thread that has stopped, the innermost first."""
        thread = self.event("stopped")["threadId"]
        frames: list[Message] = self.ask("stackTrace", threadId=thread)["stackFrames"]
        return frames

    def evaluate(self, frame: Message, expression: str) -> str:
        """What it says, as the editor shows it."""
        said = self.ask("evaluate", expression=expression, frameId=frame["id"], context="repl")
        return str(said["result"])

    def variables(self, frame: Message) -> dict[str, Message]:
        """The local ones, by name."""
        scopes = self.ask("scopes", frameId=frame["id"])["scopes"]
        (reference,) = (scope["variablesReference"] for scope in scopes if scope["name"] == "Locals")
        return self.parts(reference)

    def parts(self, reference: int) -> dict[str, Message]:
        """What a variable consists of, by name, as an editor unfolds it."""
        said = self.ask("variables", variablesReference=reference)["variables"]
        return {one["name"]: one for one in said}

    def go_on(self) -> None:
        """To the end of the process."""
        self.ask("continue", threadId=0)
        self.event("terminated")

    def ask(self, command: str, **given: Any) -> Message:
        sent = self._send(command, given)
        answer = self._until(lambda said: said.get("request_seq") == sent)
        assert answer["success"], answer
        body: Message = answer.get("body", {})
        return body

    def event(self, name: str) -> Message:
        body: Message = self._until(lambda said: said.get("event") == name).get("body", {})
        return body

    def _send(self, command: str, given: Message) -> int:
        self._sent += 1
        said = {"seq": self._sent, "type": "request", "command": command, "arguments": given}
        raw = json.dumps(said).encode()
        self._socket.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(raw), raw))
        return self._sent

    def _until(self, wanted: Callable[[Message], bool]) -> Message:
        while not wanted(said := self._next()):
            assert said.get("success", True), said  # else it is what else an editor would show
        return said

    def _next(self) -> Message:
        length = None
        while line := self._messages.readline().strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        assert length is not None, "the other end has closed the connection"
        said: Message = json.loads(self._messages.read(length))
        return said
