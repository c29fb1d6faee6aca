"""Every setting of ours, under `spark.clonos.*`, validated when a query starts.

Few, with defaults that hold for most jobs. The table in docs/settings.md is generated from `SETTINGS`, so that no
setting is without its sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from clonos.errors import ConfigurationError
from clonos.protocol.recovery.causal.delta_journal import FULL
from clonos.protocol.recovery.on_gap import OnGap
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.spark.openlineage.consumer import TAKES, Consumer, consumer_of
from clonos.spark.plan import STANDBY
from clonos.spark.recovery_traces import check_endpoint
from clonos_standby.server.log import LogFormat
from clonos_standby.server.metrics_place import LOOPBACK

PREFIX = "spark.clonos."

_BYTES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_SECONDS |= {
    f"{name}{end}": _SECONDS[name[0]] for name in ("second", "minute", "hour", "day") for end in ("", "s")
}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_MOST = 1 << 62


@dataclass(frozen=True, slots=True)
class Reader:
    """How the text of a setting becomes its value; `takes` says in words what it may be."""

    read: Callable[[str], Any]
    takes: str


def _number(low: int, high: int) -> Reader:
    def read(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError
        return value

    return Reader(
        read, f"a whole number from {low:,} to {high:,}" if high < _MOST else f"a whole number, {low} or more"
    )


def _quantity(text: str, units: Mapping[str, float], what: str) -> float:
    match = _QUANTITY.fullmatch(text.strip().lower())
    if match is None or match[2] not in units:
        raise ValueError(what)
    return float(match[1]) * units[match[2]]


def _size(low: int, high: int = _MOST) -> Reader:
    units = _BYTES | {f"{unit}b": factor for unit, factor in _BYTES.items() if unit not in ("", "b")}

    def read(text: str) -> int:
        value = int(_quantity(text, units, text))
        if not low <= value <= high:
            raise ValueError
        return value

    words = f"a size such as 64m, {_short(low)} or more"
    return Reader(
        read, words if high == _MOST else f"a size such as 1m, from {_short(low)} to {_short(high)}"
    )


def _short(size: int) -> str:
    for unit in ("g", "m", "k"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return f"{size}b"


def _time(low: str, high: str) -> Reader:
    least, most = (_quantity(text, _SECONDS, text) for text in (low, high))

    def read(text: str) -> float:
        value = _quantity(text, _SECONDS, text)
        if not least <= value <= most:
            raise ValueError
        return value

    return Reader(read, f"a time such as 500ms, from {low} to {high}")


def _time_or_off(low: str, high: str) -> Reader:
    time = _time(low, high)
    return Reader(lambda text: 0.0 if text.strip() == "off" else time.read(text), f"off, or {time.takes}")


def _one_of(values: Mapping[str, Any]) -> Reader:
    return Reader(lambda text: values[text.strip().lower()], " or ".join(values))


def _member_of(kind: type[Enum]) -> Reader:
    return _one_of({member.value: member for member in kind})


def _port(text: str) -> int | None:
    return None if text.strip().lower() == "off" else int(_number(0, 65_535).read(text))


def _host(text: str) -> str:
    if not text.strip():
        raise ValueError
    return text.strip()


EXECUTORS = ("executors",)
"""Instead of the names of services: those that executors start themselves."""


def _services(text: str) -> tuple[str, ...]:
    if text.strip().lower() == EXECUTORS[0]:
        return EXECUTORS
    places = tuple(place.strip() for place in text.split(",") if place.strip())
    for place in places:
        host, _, port = place.rpartition(":")
        if not host or not 0 < int(port) <= 65_535 or places.count(place) > 1:
            raise ValueError
    return places


def _depth(text: str) -> int:
    return FULL if text.strip().lower() == "full" else int(_number(0, _MOST).read(text))


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its key after the prefix, default as text, how it is read, and its sentence."""

    key: str
    default: str
    reader: Reader
    says: str


def _setting(key: str, default: str, reader: Reader, says: str) -> dict[str, Setting]:
    return {"setting": Setting(key, default, reader, says)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one query."""

    parallelism: int = field(
        metadata=_setting(
            "parallelism",
            "2",
            _number(1, 65_535),
            "Instances of an operator that names no parallelism of its own",
        )
    )
    recovery: RecoveryKind = field(
        metadata=_setting(
            "recovery",
            "causal",
            _member_of(RecoveryKind),
            "What is done after a failure: `causal` replaces the process that is lost, and rows are seen at once; "
            "`coordinated`, in real time, takes all instances back to the last complete round of checkpoints, and rows "
            "are seen when their round is complete; `unaligned` is the same, and holds no channel until others have "
            "come as far; with `uncoordinated`, in real time, too, instances take checkpoints alone and keep what they "
            "have sent; `communication_induced` is the same with more checkpoints, so that none is useless; with "
            "`eager`, in real time, nothing leaves an instance before a checkpoint that has it is durable, and a lost "
            "process is replaced; `event_log` is the same with a log of what each instance has taken, changed and "
            "sent, which is appended to; with `batch` an epoch is done again as a whole, and its rows are seen when it "
            "has committed (docs/recoveries.md)",
        )
    )
    events_url: str = field(
        metadata=_setting(
            "events.url",
            "",
            Reader(str.strip, "a URL"),
            "With `event_log`, the PostgreSQL database in which logs are kept, as `postgresql://user@host/database`, "
            "without a password; empty: files in the checkpoint",
        )
    )
    round_interval: float = field(
        metadata=_setting(
            "recovery.interval",
            "1s",
            _time("10ms", "24h"),
            "With `coordinated` and `unaligned`, the time from the beginning of a round to that of the next; with "
            "`uncoordinated` and `communication_induced`, that from one checkpoint of an instance to its next, give or "
            "take a fifth; with `eager`, where it sends nothing",
        )
    )
    depth: int = field(
        metadata=_setting(
            "sharing.depth",
            "full",
            Reader(_depth, "full, or a whole number"),
            "How many hops downstream a causal log is shared. Fewer cost fewer bytes and cover fewer failures",
        )
    )
    standby: str = field(
        metadata=_setting(
            "standby",
            "none",
            _one_of({kind: kind for kind in STANDBY}),
            "The standby of every operator's instance whose operator does not say it itself: a hot one does what the "
            "replica does, a passive one goes from snapshot to snapshot",
        )
    )
    recording: bool = field(
        metadata=_setting(
            "recording",
            "true",
            _one_of({"true": True, "false": False}),
            "Only for measuring: with false nothing is recorded, and output is no longer exact",
        )
    )
    intercept: bool = field(
        metadata=_setting(
            "intercept",
            "false",
            _one_of({"true": True, "false": False}),
            "With true, what functions ask of Python's own clocks and random generators (`time.time()`, "
            "`random.random()`, `uuid.uuid4()`) is recorded and repeated, as what they ask of `ctx` is "
            "([intercept.md](intercept.md))",
        )
    )
    archive_keep: float = field(
        metadata=_setting(
            "archive.keep",
            "off",
            _time_or_off("1s", "3650d"),
            "For how long epochs that are over can be looked into and repeated, as `30 days` "
            "([archive.md](archive.md)): input, causal logs, states and functions of operators are kept in the "
            "checkpoint",
        )
    )
    archive_size: int = field(
        metadata=_setting(
            "archive.size",
            "0",
            _size(0),
            "Bytes of input and causal logs of past epochs, at most, where they are kept; 0: what `archive.keep` says",
        )
    )
    archive_key_file: str = field(
        metadata=_setting(
            "archive.keyFile",
            "",
            Reader(str, "a path"),
            "A file with the keys that the archive is encrypted with ([archive.md](archive.md#encryption)), on each "
            "host; empty: it is not encrypted",
        )
    )
    archive_lineage: bool = field(
        metadata=_setting(
            "archive.lineage",
            "false",
            _one_of({"true": True, "false": False}),
            "With true, which rows are of which records is recorded while the query runs, so that "
            "[lineage](explain.md#lineage) is read and not found by repeating. It is part of the archive: "
            "`archive.keep` has to be set",
        )
    )
    on_gap: OnGap = field(
        metadata=_setting(
            "onGap",
            "fail",
            _member_of(OnGap),
            "Where determinants are needed that no holder has: stop, or go on although output may repeat",
        )
    )
    bundle_rows: int = field(
        metadata=_setting("bundle.rows", "4096", _number(1, 1 << 20), "Most rows in a bundle")
    )
    bundle_bytes: int = field(
        metadata=_setting("bundle.bytes", "1m", _size(1, 64 << 20), "Bytes after which a bundle is closed")
    )
    flush: float = field(
        metadata=_setting(
            "bundle.flush",
            "5ms",
            _time("0ms", "60s"),
            "Longest time a row waits for others, per bundle that is under way",
        )
    )
    tick: float = field(
        metadata=_setting("tick", "20ms", _time("1ms", "60s"), "How often an instance looks at its timers")
    )
    inflight_memory: int = field(
        metadata=_setting(
            "inflight.memory", "64m", _size(0), "Memory of a conduit's in-flight log; more is spilled to disk"
        )
    )
    heartbeat: float = field(
        metadata=_setting(
            "replica.deadline",
            "10s",
            _time("1s", "24h"),
            "A replica that gives no sign of life for so long is replaced; so is a replica server on the driver's host",
        )
    )
    attempts: int = field(
        metadata=_setting(
            "replica.attempts",
            "4",
            _number(1, 1000),
            "Replicas that may be lost at the same record before the task fails",
        )
    )
    function_deadline: float = field(
        metadata=_setting(
            "function.deadline",
            "5m",
            _time("1s", "24h"),
            "A replica whose function makes no progress for so long, at one record, is replaced",
        )
    )
    recovery_deadline: float = field(
        metadata=_setting(
            "recovery.deadline",
            "120s",
            _time("1s", "24h"),
            "Longest time an instance may take to restore and fetch its log",
        )
    )
    snapshot_interval: float = field(
        metadata=_setting(
            "snapshot.interval",
            "10s",
            _time("10ms", "24h"),
            "Longest time between background snapshots within an epoch",
        )
    )
    snapshot_work: float = field(
        metadata=_setting(
            "snapshot.work",
            "100ms",
            _time("1ms", "24h"),
            "CPU time after which a snapshot is taken sooner: about what a recovery repeats. Snapshots take at most a "
            "thirtieth of an instance's time",
        )
    )
    state_cache: int = field(
        metadata=_setting(
            "state.cache",
            "200000",
            _number(1, 1 << 31),
            "Keyed-state entries kept as objects, per instance",
        )
    )
    data_dir: str = field(
        metadata=_setting(
            "data",
            "",
            Reader(str, "a path"),
            "Directory on the driver's host for causal logs and working state. Default: inside the checkpoint where "
            "that is a local path, else under the user's cache directory. It must survive a restart of the driver",
        )
    )
    metrics_port: int | None = field(
        metadata=_setting(
            "metrics.port",
            "off",
            Reader(_port, "off, or a port from 0 to 65,535"),
            "Where the replica server answers `GET /metrics` in Prometheus' text format; 0 is any free port, which "
            "`clonos status` shows. A second server on the driver's host has the port after it, services of executors "
            "the one after that",
        )
    )
    metrics_host: str = field(
        metadata=_setting(
            "metrics.host",
            LOOPBACK,
            Reader(_host, "a name or address"),
            "Address of the driver's host at which it answers. One that other hosts reach needs "
            "`spark.clonos.metrics.token.file`; there it is `https`, where `spark.clonos.tls.*` are set",
        )
    )
    metrics_token_file: str = field(
        metadata=_setting(
            "metrics.token.file",
            "",
            Reader(str, "a path, or none"),
            "File with the token that readers of the metrics show (`Authorization: Bearer`). `none`: no token is "
            "asked for at an address that other hosts reach",
        )
    )
    traces_endpoint: str = field(
        metadata=_setting(
            "traces.endpoint",
            "",
            Reader(check_endpoint, "http(s)://HOST:PORT, with /v1/traces behind it for a receiver over HTTP"),
            "OpenTelemetry receiver that gets a trace of each recovery, over gRPC (`http://collector:4317`) or HTTP "
            "(`http://collector:4318/v1/traces`). Default: what the driver's `OTEL_EXPORTER_OTLP_*` say, if anything",
        )
    )
    openlineage: Consumer | None = field(
        metadata=_setting(
            "openlineage",
            "false",
            Reader(consumer_of, TAKES),
            "Where OpenLineage events of the query's runs go (docs/openlineage.md): `http://marquez:5000`, with a path "
            "behind it where that is not `/api/v1/lineage`; with `true` as OpenLineage's own configuration says, "
            "`OPENLINEAGE_URL` or `openlineage.yml`",
        )
    )
    replica_servers: tuple[str, ...] = field(
        metadata=_setting(
            "replica.servers",
            "",
            Reader(_services, "executors, or HOST:PORT of services, each once, with commas between them"),
            "Replica services on other hosts, for standbys and, on a cluster, for primaries near their tasks: one "
            "beside each executor, which has to be said before the session is there, or those that are named "
            "(`clonos standby`). Default: a second server on the driver's host",
        )
    )
    replica_token_file: str = field(
        metadata=_setting(
            "replica.token.file", "", Reader(str, "a path"), "File with the token of those services"
        )
    )
    replica_host: str = field(
        metadata=_setting(
            "replica.host",
            "",
            Reader(str, "a name or address"),
            "Under which those services, and executors, reach the driver's host. Default: on a cluster "
            "`spark.driver.host`, else its address on the way to the first of them",
        )
    )
    tls_ca: str = field(
        metadata=_setting(
            "tls.ca",
            "",
            Reader(str, "a path"),
            "PEM file, on every host, of the authority whose certificates count between hosts. Without TLS, what goes "
            "between hosts is neither hidden nor protected from being changed",
        )
    )
    tls_cert: str = field(
        metadata=_setting(
            "tls.cert", "", Reader(str, "a path"), "PEM file, on every host, with its certificate and chain"
        )
    )
    tls_key: str = field(
        metadata=_setting("tls.key", "", Reader(str, "a path"), "PEM file, on every host, with its key")
    )
    log_format: LogFormat = field(
        metadata=_setting(
            "log.format",
            "text",
            _member_of(LogFormat),
            "How servers, replicas and the driver's logger `clonos` write: lines of text, or one JSON object per line",
        )
    )
    restart_limit: int = field(
        metadata=_setting(
            "restart.limit",
            "10",
            _number(0, _MOST),
            "Restarts of the Spark query for one reason: an instance that fails and gets no further, or a query "
            "of which no instance does. They are counted anew when an epoch has committed",
        )
    )
    restart_backoff: float = field(
        metadata=_setting(
            "restart.backoff",
            "200ms",
            _time("0ms", "1h"),
            "Wait before the first restart; doubles up to 30 s",
        )
    )

    @property
    def on_executors(self) -> bool:
        """Whether executors have replica services of their own."""
        return self.replica_servers == EXECUTORS


SETTINGS: tuple[Setting, ...] = tuple(f.metadata["setting"] for f in fields(Settings))


def read_settings(given: Mapping[str, str]) -> Settings:
    """Settings from Spark's configuration (keys with our prefix). Raises ConfigurationError."""
    known = {PREFIX + f.metadata["setting"].key: f for f in fields(Settings)}
    unknown = sorted(key for key in given if key.startswith(PREFIX) and key not in known)
    if unknown:
        raise ConfigurationError(
            f"unknown setting {', '.join(unknown)}",
            hint="The settings are " + ", ".join(sorted(known)),
        )
    values: dict[str, Any] = {}
    for key, f in known.items():
        setting: Setting = f.metadata["setting"]
        text = given.get(key, setting.default)
        try:
            values[f.name] = setting.reader.read(text)
        except (ValueError, KeyError, OverflowError) as error:
            raise ConfigurationError(
                f"{key} is {text!r}; it must be {setting.reader.takes}", hint=setting.says
            ) from error
    return Settings(**values)
