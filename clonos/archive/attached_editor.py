"""A debugger in an editor: it attaches over the Debug Adapter Protocol, and the user's function stops there."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

from clonos.archive.tracing import Row
from clonos.archive.user_frames import told_of_frames
from clonos.errors import ConfigurationError
from clonos.extras import needs
from clonos.operators.function_code import called_code

_HOST: Final = "127.0.0.1"
_PORTS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class AttachAddress:
    """Where an editor attaches. Port 0 is any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> AttachAddress:
        """Of `[HOST:]PORT`. Raises ConfigurationError."""
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")  # of an address of IPv6
        if not (port.isascii() and port.isdigit() and int(port) < _PORTS) or (colon and not host):
            raise ConfigurationError(
                f"{text!r} is no address that an editor can attach to",
                hint=f"Give a port, as 5678, or a host and a port, as {_HOST}:5678",
            )
        return cls(host or _HOST, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class EditorDebugger:
    """Runs a call of an operator's when an editor has attached, and stops at the first line of the user's function that
    is called; where the operator has none in Python, at its own."""

    def __init__(self, address: AttachAddress, waits: Callable[[AttachAddress], None]) -> None:
        """`waits` is told where, when an editor can attach; nothing listens before. Raises ConfigurationError where
        debugpy is not installed."""
        needs("debugpy", "--debugpy")
        self._address = address
        self._waits = waits

    def __call__(self, operator: Any, run: Callable[[], list[Row]]) -> list[Row]:
        """Raises ConfigurationError where nothing can listen at the address."""
        import debugpy

        self._waits(self._listen())
        debugpy.wait_for_client()
        with told_of_frames(called_code(operator), _stop_at):
            return run()

    def _listen(self) -> AttachAddress:
        # It would warn of modules that it does not see into, since they are frozen: those that Python begins with.
        os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
        import debugpy

        debugpy.configure(subProcess=False)  # it is this process that the function runs in
        try:
            host, port = debugpy.listen((self._address.host, self._address.port))
        except RuntimeError as error:
            raise ConfigurationError(
                f"nothing can listen at {self._address}: {error}",
                hint="Give an address of this host, and a port that is free; 0 is any free one",
            ) from error
        return AttachAddress(str(host), int(port))


def _stop_at(frame: FrameType) -> bool:
    """Suspend it, at its first line, and no other one."""
    import debugpy
    import pydevd  # debugpy's, which has it on the path

    if not debugpy.is_client_connected():
        return False  # the editor has gone again
    debugger = pydevd.get_global_debugger()
    if debugger.is_files_filter_enabled and debugger.apply_files_filter(
        frame, frame.f_code.co_filename, True
    ):
        # With "justMyCode" nothing stops in installed packages, and the function is in one.
        debugger.set_use_libraries_filter(False)
    pydevd.settrace(suspend=True, trace_only_current_thread=True, stop_at_frame=frame, notify_stdin=False)
    return False
