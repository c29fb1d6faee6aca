"""The compose file of deploy/containers, run by Podman: real containers, and a network between them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from kafka_broker import broker_jars

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy" / "containers" / "compose.yaml"
_NEEDED = ("podman", "debootstrap", "catatonit")
_COMPOSE = (sys.executable, "-m", "podman_compose", "--file", str(FILE))
_BUILD_S, _COMMAND_S = 1800.0, 240.0


def why_not() -> str | None:
    """Why no containers can be run here, or None."""
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    return f"{', '.join(missing)} is not installed (apt-get install {' '.join(_NEEDED)})" if missing else None


class Composition:
    """The services of the compose file."""

    def __init__(self) -> None:
        self._environment = {
            **os.environ,
            "BUILDAH_ISOLATION": "chroot",
            "KAFKA_IMAGE": "localhost/clonos-kafka",
            "POSTGRES_IMAGE": "localhost/clonos-postgres",
        }
        self._begun: list[subprocess.Popen[bytes]] = []

    def compose(self, *arguments: str, given: str = "", seconds: float = _COMMAND_S) -> str:
        """What a command of podman-compose writes. Raises CalledProcessError."""
        done = subprocess.run(
            [*_COMPOSE, *arguments],
            env=self._environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert not done.returncode, f"{arguments}: {done.stdout[-4000:]} {done.stderr[-4000:]}"
        return done.stdout

    def build(self, folder: Path) -> None:
        """The images, in `folder` what they are made of."""
        for jar in broker_jars():
            shutil.copy(jar, folder)
        stand_ins = [str(ROOT / "tests" / "containers" / "stand_ins.sh"), "podman", str(folder)]
        subprocess.run(stand_ins, env=self._environment, timeout=_BUILD_S, check=True)
        self.compose("build", "spark", seconds=_BUILD_S)

    def at_desk(self, *command: str, given: str = "") -> str:
        """What a command writes that is run at the desk."""
        return self.compose("exec", "-T", "desk", *command, given=given)

    def begin_at_desk(self, *command: str) -> None:
        """The same, in the background, until the desk is killed."""
        self._begun.append(
            subprocess.Popen(
                [*_COMPOSE, "exec", "-T", "desk", *command], env=self._environment, stdin=subprocess.DEVNULL
            )
        )

    def end(self) -> None:
        """Nothing is left of it, its volumes neither."""
        self.compose("down", "--volumes")
        for process in self._begun:
            process.wait(_COMMAND_S)


@contextlib.contextmanager
def composition(folder: Path) -> Iterator[Composition]:
    """All services run, with empty volumes; they are gone afterwards."""
    services = Composition()
    services.build(folder)
    services.end()
    try:
        services.compose("up", "--detach")
        yield services
    finally:
        services.end()
