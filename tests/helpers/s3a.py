"""Hadoop's S3A, by which Spark reaches an object store, fetched once per tree, and what a session has to say for it."""

from __future__ import annotations

from pathlib import Path

from maven_jars import fetched_once
from s3_server import OWNER, S3Server

from clonos.connector_jars import FetchFailure, resolve
from clonos.environment import jar_path

# The kit's own bundle of everything is forty times as large as the modules that S3A uses.
_SDK = "2.36.2"
ALONE = (
    "org.apache.hadoop:hadoop-aws:3.5.0",
    "org.wildfly.openssl:wildfly-openssl:2.1.4.Final",
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
)
WHOLE = tuple(
    f"software.amazon.awssdk:{module}:{_SDK}"
    for module in ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
)
_FOLDER = Path(__file__).resolve().parents[2] / ".build" / "s3a"


def s3a_jars() -> list[str]:
    """Raises FetchFailure."""

    def fetch(java: Path) -> list[Path]:
        alone = resolve(java, jar_path(), _FOLDER / "alone", ALONE, dependencies=False)
        return alone + resolve(java, jar_path(), _FOLDER / "whole", WHOLE, dependencies=True)

    return fetched_once(_FOLDER, fetch)


def session_settings(server: S3Server, endpoint: str = "") -> dict[str, str]:
    """Of a Spark session that uses the server as its owner. `endpoint`: of a proxy before it."""
    return {
        "spark.jars": ",".join([str(jar_path()), *s3a_jars()]),
        "spark.hadoop.fs.s3a.endpoint": endpoint or server.endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.access.key": OWNER.access_key_id,
        "spark.hadoop.fs.s3a.secret.key": OWNER.secret_access_key,
    }


def why_not() -> str | None:
    """Why Spark cannot reach an object store here, or None."""
    try:
        s3a_jars()
    except FetchFailure as failure:
        return f"Spark's file system for S3 cannot be fetched: {failure}"
    return None
