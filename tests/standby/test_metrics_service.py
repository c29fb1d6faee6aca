"""The metrics of a replica service: one page with its own numbers and those of all queries that it runs."""

from __future__ import annotations

import os
import re
import signal
import urllib.request
from pathlib import Path

import msgpack
from services import TOKEN, service
from standby_conduit import PATIENCE, until
from test_standby_service import status, wanted

from clonos.wire.replica_client import ReplicaClient


def test_one_page_has_all_queries_and_goes_on_without_one_that_does_not_answer(tmp_path: Path) -> None:
    (tmp_path / "readers").write_text("secret")
    told = ("--metrics", "localhost:0", "--metrics-token-file", str(tmp_path / "readers"))
    with service(tmp_path / "service", more=told) as running:
        found = re.search(r"metrics at (http://localhost:\d+/metrics)", running.said)
        assert found is not None
        address = found[1]
        client = ReplicaClient(running.address, TOKEN)
        granted = {query: client.host(wanted(tmp_path, query)) for query in ("q1", "q2")}

        def page() -> str:
            asked = urllib.request.Request(address, headers={"Authorization": "Bearer secret"})
            with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
                return str(answer.read().decode())

        text = page()
        families = re.findall("^# TYPE (\\S+)", text, re.MULTILINE)
        assert len(families) == len(set(families))
        for line in (
            "clonos_service_free_slots 12.0",
            *(f'clonos_service_query_up{{query="{query}"}} 1.0' for query in granted),
            *(f'clonos_deaths_total{{kind="oom",query="{query}"}} 0.0' for query in granted),
        ):
            assert line in text.splitlines(), text
        described = client.describe()
        assert described["metrics"] == address
        pid = status(granted["q1"])["pid"]
        assert status(granted["q1"])["metrics"] == address
        os.kill(pid, signal.SIGSTOP)
        try:
            text = until(lambda: 'query_up{query="q1"} 0.0' in (now := page()) and now)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert (
            'clonos_committed_epoch{query="q2"}' in text and 'clonos_committed_epoch{query="q1"}' not in text
        )
        client.close()


def test_a_query_brings_no_page_of_its_own_to_a_service(tmp_path: Path) -> None:
    with service(tmp_path / "service") as running:
        client = ReplicaClient(running.address, TOKEN)
        asked = wanted(tmp_path)
        spec = msgpack.unpackb(asked.spec, raw=False, strict_map_key=False)
        spec["metrics"] = {"host": "0.0.0.0", "port": 0}
        object.__setattr__(asked, "spec", msgpack.packb(spec))
        assert status(client.host(asked))["metrics"] is None
        client.close()
