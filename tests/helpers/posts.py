"""A server over HTTP that takes posts."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Take = Callable[[str, Mapping[str, str], bytes], int]
"""Of a post its path, headers and content; what is answered: a status."""


@contextlib.contextmanager
def takes_posts(take: Take) -> Iterator[str]:
    """Its URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            status = take(self.path, dict(self.headers), body)
            with contextlib.suppress(OSError):  # who has asked may not wait any more
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            """Not on the test's standard error."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
