"""A process beside the supervisor is replaced when it dies or hangs, also before it has told its address."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from clonos_standby.server import sidecar
from clonos_standby.server.event_loop import Loop
from clonos_standby.server.sidecar import Sidecar

LATE = """
import json, os, signal, sys
from pathlib import Path
begun = Path(sys.argv[1])
if not begun.exists():
    begun.touch()
    {first}
print(json.dumps({{"address": "127.0.0.1:7"}}), flush=True)
while os.read(0, 4096):
    os.write(1, b"\\n")
"""


@pytest.mark.parametrize(
    "first", ["os.kill(os.getpid(), signal.SIGSTOP)", "print('no address', flush=True); signal.pause()"]
)
def test_one_that_does_not_tell_its_address_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    (tmp_path / "late_sidecar.py").write_text(LATE.format(first=first))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sidecar, "START_SECONDS", 0.5)
    begun = tmp_path / "begun"
    loop = Loop()
    ready: list[str] = []

    def on_ready(address: str) -> None:
        ready.append(address)
        loop.stop()

    # Before it was late, because the machine is slow, or after: then the next one is in time
    def died() -> None:
        longer = 600.0 if begun.exists() else 2 * sidecar.START_SECONDS
        monkeypatch.setattr(sidecar, "START_SECONDS", longer)
        beside.check()

    beside = Sidecar(loop, "late_sidecar", [str(begun)], tmp_path / "port", on_ready)
    loop.on_signal(signal.SIGCHLD, died)
    try:
        beside.start()
        loop.run()
        assert ready == ["127.0.0.1:7"] and begun.exists()
    finally:
        beside.close()
        loop.close()
