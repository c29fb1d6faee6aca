"""A weather service: the part of the outside world that a query cannot ask twice.

A real HTTP server on the loopback, in a process of its own. `GET
/weather?origin=JFK&hour=2013-01-01T10:00:00Z` answers with the observation at that airport as the service
knows it *now*: it keeps revising. Every `revise_ms` its version goes up, and with it the observation moves on
to the next hour of the real table. So the same question asked again a little later gets another answer, and
the answer says which version it is.

Also counted, per origin, is how often it was asked, so that a test can tell whether a call was repeated
(`GET /asked`).

Run as a process: `python -m clonos.tools.flights.weather`; it prints its address and ends when its input closes.
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

import pandas as pd

from clonos.errors import ClonosError, ConfigurationError
from clonos.tools.flights.data import ORIGINS, table

__all__ = ["Observations", "WeatherServer", "WeatherService", "ask"]

REVISE_MS = 200


class Observations:
    """The hourly observations of the real table, by airport; and what is known at a version."""

    def __init__(self) -> None:
        frame = table("weather").sort_values(["origin", "time_hour"])
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._index: dict[str, dict[str, int]] = {}
        for origin, group in frame.groupby("origin"):
            rows = [_observation(record) for record in group.itertuples(index=False)]
            self._rows[str(origin)] = rows
            self._index[str(origin)] = {row["hour"]: i for i, row in enumerate(rows)}

    def known(self, origin: str, hour: str, version: int) -> dict[str, Any] | None:
        """The answer at `version`, or `None` for an airport without observations."""
        rows = self._rows.get(origin)
        if rows is None:
            return None
        row = rows[(self._index[origin].get(hour, 0) + version) % len(rows)]
        return {"version": version, **row}


def _observation(record: Any) -> dict[str, Any]:
    def whole(value: Any) -> int:
        return 0 if pd.isna(value) else round(float(value))

    return {
        "hour": str(record.time_hour),
        "temperature_f": whole(record.temp),
        "wind_mph": whole(record.wind_speed),
        "visibility_miles": whole(record.visib),
        "rain_hundredths": whole(record.precip * 100),
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keep-alive
    disable_nagle_algorithm = True
    wbufsize = -1  # headers and body leave in one segment
    timeout = 60
    server: WeatherServer

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/asked":
            self._answer(200, self.server.asked())
            return
        asked = parse_qs(url.query)
        origin, hour = asked.get("origin", [""])[0], asked.get("hour", [""])[0]
        answer = self.server.answer(origin, hour) if url.path == "/weather" else None
        if answer is None:
            self._answer(404, {"error": f"no weather for {self.path!r}; airports are {', '.join(ORIGINS)}"})
        else:
            self._answer(200, answer)

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: hundreds of requests a second come by."""


class WeatherServer(ThreadingHTTPServer):
    """The server itself; `serve_forever` runs it in this thread."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int = 0, *, revise_ms: int = REVISE_MS) -> None:
        if revise_ms < 1:
            raise ConfigurationError(f"revise_ms must be at least 1, not {revise_ms}")
        self._observations = Observations()
        self._revise_s = revise_ms / 1000
        self._began = time.monotonic()
        self._asked: Counter[str] = Counter()
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, origin: str, hour: str) -> dict[str, Any] | None:
        """The answer at this moment."""
        with self._lock:
            self._asked[origin] += 1
        version = 1 + int((time.monotonic() - self._began) / self._revise_s)
        return self._observations.known(origin, hour, version)

    def asked(self) -> dict[str, int]:
        """How often each airport was asked for."""
        with self._lock:
            return dict(self._asked)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed leaves its connection; that is what this demo does all the time."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class WeatherService:
    """The server in a process of its own: `with WeatherService() as service: service.url`.

    The process ends when the service is stopped, and also when its owner dies (its input closes).
    """

    def __init__(self, *, revise_ms: int = REVISE_MS, start_timeout_s: float = 60) -> None:
        command = [sys.executable, "-m", "clonos.tools.flights.weather", "--revise-ms", str(revise_ms)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, text=True
        )
        assert self._process.stdout is not None
        watchdog = threading.Timer(start_timeout_s, self._process.kill)
        watchdog.start()
        try:
            self.url = self._process.stdout.readline().strip()
        finally:
            watchdog.cancel()
        if not self.url:
            code = self._process.wait(timeout=10)
            self.stop()
            raise ClonosError(f"the weather service did not start (exit code {code})")

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """End the process; again is harmless."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=5)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


_connections = threading.local()


def ask(url: str, origin: str, hour: str) -> dict[str, Any]:
    """Ask the service; one kept-alive connection per thread and address, opened anew once where it has gone
    stale.
    """
    question = "/weather?" + urlencode({"origin": origin, "hour": hour})
    kept: dict[str, http.client.HTTPConnection] = _connections.__dict__
    for attempt in (1, 2):
        connection = kept.get(url)
        try:
            if connection is None:
                connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
                connection.connect()
                connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                kept[url] = connection
            connection.request("GET", question)
            reply = connection.getresponse()
            body = reply.read()
        except (http.client.HTTPException, ConnectionError):
            stale = kept.pop(url, None)
            if stale is not None:
                stale.close()
            if attempt == 2 or stale is None:
                raise
            continue
        answer: dict[str, Any] = json.loads(body)
        if reply.status != 200:
            raise LookupError(answer.get("error", f"the weather service answered {reply.status}"))
        return answer
    raise AssertionError("unreachable")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m clonos.tools.flights.weather", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--revise-ms", type=int, default=REVISE_MS)
    options = parser.parse_args(arguments)
    with WeatherServer(options.port, revise_ms=options.revise_ms) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.url, flush=True)
        sys.stdin.read()  # until the parent process closes it or dies
        server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
