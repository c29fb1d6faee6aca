"""A replica service as a process of its own, and certificates for it: what several tests need."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clonos.wire.tls import Tls

TOKEN = "the service's token"
LEASE = 3.0
"""Seconds of a lease whose end a test waits for: a driver that is at work prolongs it also on a busy machine."""
HELPERS = Path(__file__).parent


class Service:
    """`clonos standby`, with modules of the tests to be found."""

    def __init__(
        self,
        folder: Path,
        *,
        slots: int = 16,
        lease: float = 60.0,
        tls: Tls | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        until_eof: bool = False,
        stdin: int | None = None,
        more: tuple[str, ...] = (),
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.data = folder / "data"
        self.token_file = folder / "token"
        self.token_file.write_text(TOKEN + "\n")
        command = [sys.executable, "-m", "clonos.cli", "standby", "--listen", f"{host}:{port}"]
        command += ["--data", str(self.data), "--slots", str(slots), "--lease", str(lease)]
        command += ["--token-file", str(self.token_file)]
        if tls is not None:
            command += ["--tls-ca", tls.ca, "--tls-cert", tls.cert, "--tls-key", tls.key]
        command += more
        if until_eof:
            command.append("--until-eof")
        path = os.pathsep.join([str(HELPERS), str(HELPERS.parent / "e2e"), *filter(None, sys.path)])
        self.errors = folder / "service.err"
        with self.errors.open("ab") as stderr:
            self.process = subprocess.Popen(
                command,
                stdin=stdin if stdin is not None else subprocess.PIPE if until_eof else None,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, "PYTHONPATH": path, "PYTHONFAULTHANDLER": "1"},
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert line.startswith("replica service at "), (line, self.errors.read_text())
        self.said = line.strip()
        self.address = line.split()[3].rstrip(",")

    @property
    def settings(self) -> dict[str, str]:
        """What a query says to use it, without the prefix."""
        return {"replica.servers": self.address, "replica.token.file": str(self.token_file)}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._close_output()

    def end(self) -> int:
        """As an init system ends it; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # it writes where it stands, and ends
            self.process.wait(120)
            raise AssertionError(f"the service does not end:\n{self.errors.read_text()}") from None

    def close(self) -> None:
        if self.process.poll() is None:
            self.end()
        self._close_output()

    def _close_output(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextlib.contextmanager
def service(folder: Path, **options: object) -> Iterator[Service]:
    running = Service(folder, **options)  # type: ignore[arg-type]
    try:
        yield running
    finally:
        running.close()


class Authority:
    """Certificates by the openssl program."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("openssl")
        if program is None:
            pytest.skip("there is no openssl program to make certificates with")
        self._openssl, self.folder = program, folder
        folder.mkdir(exist_ok=True)
        self._run(
            "req", "-x509", *self._new_key("ca"), "-out", "ca.pem", "-subj", "/CN=authority", "-days", "2"
        )

    def issue(self, name: str, *hosts: str) -> Tls:
        """A certificate for hosts, as `IP:127.0.0.1` or `DNS:localhost`."""
        names = ",".join(hosts or ("IP:127.0.0.1",))
        (self.folder / f"{name}.ext").write_text(f"subjectAltName={names}\n")
        self._run("req", *self._new_key(name), "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"]
        self._run(
            "x509", "-req", "-in", f"{name}.csr", *signing, "-extfile", f"{name}.ext", "-out", f"{name}.pem"
        )
        return Tls(*(str(self.folder / file) for file in ("ca.pem", f"{name}.pem", f"{name}.key")))

    @staticmethod
    def _new_key(name: str) -> list[str]:
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        return [*curve, "-nodes", "-keyout", f"{name}.key"]

    def _run(self, *arguments: str) -> None:
        done = subprocess.run([self._openssl, *arguments], cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
