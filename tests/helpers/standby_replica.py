"""A replica for the tests of the replica server: answers a conduit without running any operator.

It welcomes every connection and takes its orders from the bundles: the bytes behind the frame's header are a command.
Each BUNDLE is answered by an OUTPUT whose log bytes are the command's result.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from clonos.wire import messages
from clonos.wire.framing import FrameType, read_frame, send_frames
from clonos_standby.server.control import ControlChannel, ControlClosed
from clonos_standby.server.control_messages import (
    AskPromotion,
    AtEnd,
    Connect,
    Figures,
    Granted,
    Recovered,
    pack_control,
    parse_control,
)

RECOVERED = {"ms": 12.0, "phases": {"state": 3.0, "log": 2.0, "function": 1.0, "replay": 6.0}, "repeated": 99}
FIGURES = {
    "records": 7,
    "log_bytes": 1234,
    "snapshots": 1,
    "snapshot_seconds": 0.25,
    "forced_checkpoints": 1,
    "output_bytes": 900,
    "delta_bytes": 30,
    "watermark": 1_700_000_000.25,
    "dead_letters": 1,
    "bundle_seconds_sum": 0.75,
    "bundle_seconds_2": 3,
    "bundle_seconds_13": 1,
    "latency_seconds_sum": 2.5,
    "latency_seconds_4": 8,
    "latency_seconds_16": 2,
}


def main(control: socket.socket, spec_path: str) -> NoReturn:
    channel = ControlChannel(control)
    said: list[dict[str, Any]] = []
    while True:
        try:
            received = channel.receive()
        except ControlClosed:
            os._exit(0)
        assert received is not None
        said.append(received.message)
        message = parse_control(received.message)
        if isinstance(message, Connect):
            with socket.socket(fileno=received.fds[0]) as conduit:
                _serve(channel, conduit, message.hello, said, spec_path)


def _serve(
    channel: ControlChannel,
    conduit: socket.socket,
    hello: messages.Hello,
    said: list[dict[str, Any]],
    spec: str,
) -> None:
    if not hello.fresh:
        recovered = {"epoch": hello.epoch, "fresh": False, "promoted": False, **RECOVERED}
        channel.send(pack_control(Recovered(recovered)))
    resume = messages.parse(read_frame(conduit))  # type: ignore[arg-type]
    assert isinstance(resume, messages.Resume)
    send_frames(conduit, [messages.pack_welcome(window=8, window_bytes=1 << 20)])
    while (frame := read_frame(conduit)) is not None:
        message = messages.parse(frame)
        if frame.type is FrameType.TICK:
            send_frames(conduit, [messages.pack_heartbeat(1)])
        elif isinstance(message, messages.End):
            channel.send(pack_control(AtEnd(hello.epoch, None)))
            send_frames(conduit, [messages.pack_ended(0)])
        elif isinstance(message, messages.Bundle):
            said.extend(control.message for control in channel.poll())
            channel.send(pack_control(Figures(FIGURES)))
            command = bytes(message.blocks[0]).decode()
            answer = _promote(channel, hello) if command == "promote" else _obey(command, said, spec)
            send_frames(conduit, [messages.pack_output(message.seq, 0, 0, json.dumps(answer).encode())])


def _promote(channel: ControlChannel, hello: messages.Hello) -> Any:
    """What the supervisor says to a standby that is to act under the next fence."""
    channel.send(pack_control(AskPromotion(replace(hello, fence=hello.fence.next()))))
    while True:
        control = channel.receive()
        assert control is not None
        if isinstance(parse_control(control.message), Granted):
            return control.message


def _obey(command: str, said: list[dict[str, Any]], spec: str) -> Any:
    name, _, argument = command.partition(" ")
    if name == "pid":
        return os.getpid()
    if name == "said":
        return said
    if name == "facts":
        return _facts(spec)
    if name == "exit":
        print("leaving on purpose", file=sys.stderr, flush=True)
        os._exit(int(argument))
    if name == "segfault":
        ctypes.string_at(0)
    if name == "print":
        for number in range(int(argument)):
            print(f"line {number} " + "x" * 90)
        return None
    if name == "hang":
        hang_in_user_function(argument)
    if name == "grandchild":
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid
    if name == "fetch":
        return _fetch(argument)
    if name == "raise":
        raise ValueError(argument)
    return None


def hang_in_user_function(mark: str) -> None:
    Path(mark).touch()
    time.sleep(600)


def _fetch(address: str) -> int:
    from clonos.wire.determinant_client import fetch

    return len(fetch([address], "a-token-of-tests", 1, 0, timeout=120).replies)


def _facts(spec: str) -> dict[str, Any]:
    import numpy

    fds = {
        name: os.readlink(f"/proc/self/fd/{name}")
        for name in os.listdir("/proc/self/fd")
        if int(name) > 2
        if os.path.exists(f"/proc/self/fd/{name}")
    }
    return {
        "modules": [
            name for name in ("pyarrow", "rocksdict", "msgpack", "cloudpickle") if name in sys.modules
        ],
        "threads": threading.active_count(),
        "spec": spec,
        "group": os.getpgrp() == os.getpid(),
        "draw": float(numpy.random.random()),
        "fds": fds,
        "stdin": os.readlink("/proc/self/fd/0"),
    }


def broken(control: socket.socket, spec_path: str) -> NoReturn:
    """A replica that cannot even start."""
    raise RuntimeError("no such operator library")
