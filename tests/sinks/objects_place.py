"""A fresh place in an object store, as its readers see it."""

from __future__ import annotations

import io
import json
from typing import Any

from obstore.store import S3Store
from pyarrow import parquet
from s3_server import S3Server
from sink_child import make_sink
from sink_support import QUERY


class ObjectsPlace:
    """`endpoint`: of a proxy before the server."""

    def __init__(self, server: S3Server, form: str, endpoint: str = "") -> None:
        self.server, self.form, self.endpoint = server, form, endpoint
        self.bucket = server.fresh_bucket()
        self.url = f"s3://{self.bucket}/some/path"
        self.store: S3Store = server.store(self.bucket, "some/path")

    def arguments(self) -> dict[str, Any]:
        return {"url" if self.form == "parquet" else "path": self.url, "options": self.options}

    @property
    def options(self) -> dict[str, Any]:
        return self.server.options(endpoint=self.endpoint)

    @property
    def spec(self) -> dict[str, Any]:
        return {"sink": f"objects {self.form}", "arguments": {**self.arguments(), "patience": 60}}

    def sink(self, **arguments: Any) -> Any:
        return make_sink({**self.spec, "arguments": {**self.arguments(), **arguments}})

    def parts(self) -> list[str]:
        """What a reader of the folder sees: what begins with an underscore it passes over."""
        found = [each["path"] for each in self.store.list().collect()]
        return sorted(path for path in found if not path.startswith("_"))

    def kept(self, query: str = QUERY) -> list[str]:
        """What the sink keeps for itself."""
        found = [each["path"] for each in self.store.list(f"_clonos/{query}").collect()]
        return sorted(path.rpartition("/")[2] for path in found)

    def read(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for path in self.parts():
            content = bytes(self.store.get(path).bytes())
            if path.endswith(".parquet"):
                found += parquet.read_table(io.BytesIO(content)).to_pylist()
            else:
                found += [json.loads(line) for line in content.splitlines()]
        return found

    def rows(self) -> list[tuple[Any, ...]]:
        """In the order of the objects' names."""
        found = self.read()
        assert all(row["clonos_id"].startswith(f"{QUERY}/") for row in found)
        return [(row["clonos_id"].removeprefix(f"{QUERY}/"), row["card"], row["n"]) for row in found]
