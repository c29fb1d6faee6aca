"""`clonos kafka fetch`: bring Spark's connector for Kafka into this installation."""

from __future__ import annotations

import argparse

from clonos.connector_jars import FetchFailure, fetch_kafka_jars
from clonos.environment import check_spark_version, jar_path, java_home
from clonos.errors import ConfigurationError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One action so far."""
    actions = parser.add_subparsers(metavar="<action>", required=True)
    actions.add_parser(
        "fetch", help="fetch the connector's jars, which clonos.configure(kafka=True) then uses"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print what is there, a path a line. Raises ConfigurationError."""
    check_spark_version()
    java = java_home() / "bin" / "java"
    try:
        jars = fetch_kafka_jars(java, jar_path())
    except FetchFailure as failure:
        raise ConfigurationError(
            f"Spark's connector for Kafka cannot be fetched: {failure}",
            hint="Run it where there is a network. CLONOS_IVY_SETTINGS may name a file of Ivy settings, as for "
            "spark.jars.ivySettings, that says which repositories are asked",
        ) from failure
    except OSError as error:
        raise ConfigurationError(f"the connector cannot be written: {error}") from error
    for path in jars:
        print(path)
    return 0
