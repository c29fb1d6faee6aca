"""The replica services that executors start themselves, as the driver's side of the Spark plugin knows them.

The plugin keeps the list (`org.clonos.spark.executor.Services`): what Spark says of executors, and what they say of
their services. An executor without one, whatever the reason, is worth a warning; the query does without standbys there.
"""

from __future__ import annotations

import logging
from typing import Any

from clonos.errors import ConfigurationError
from clonos.spark.session import PLUGIN
from clonos.spark.settings import PREFIX, Settings
from clonos_standby.server.log import about

LOG = logging.getLogger("clonos")

ANSWER_SECONDS = 30.0
_SETTING = f"{PREFIX}replica.servers"


class ExecutorServices:
    """The replica services beside the executors of one Spark session."""

    def __init__(self, services: Any, least: int) -> None:
        """`services` is the plugin's list, `least` how many executors there will be at the least."""
        self._services = services
        self._least = least

    @property
    def token(self) -> str:
        """What the services want to be shown."""
        return str(self._services.token())

    def await_answers(self, seconds: float = ANSWER_SECONDS) -> None:
        """Until every executor that Spark knows has said whether it has a service."""
        self._services.awaitAnswers(self._least, round(seconds * 1000))
        silent = [f"{one}: it has not answered within {seconds:g} s" for one in self._services.unanswered()]
        for one in [*self._services.refusals(), *silent]:
            LOG.warning("no replica service at %s", one, extra=about("executor_without_service"))
        if not self.places():
            LOG.warning(
                "no executor has a replica service: the query goes on without standbys until it starts again",
                extra=about("executor_without_service"),
            )

    def places(self) -> tuple[str, ...]:
        """`HOST:PORT` of each service, in an order that stays."""
        return tuple(str(place) for place in self._services.places())


def executor_services(spark: Any, jvm: Any, settings: Settings) -> ExecutorServices | None:
    """None where the settings do not ask for them. Raises ConfigurationError where they cannot be had."""
    if not settings.on_executors:
        return None
    context = spark.sparkContext
    if context._jsc.sc().isLocal():
        raise ConfigurationError(
            f"{_SETTING} is 'executors', and in {context.master} there are none but the driver",
            hint="Leave the setting out, for a second server on this host, or name services: HOST:PORT,...",
        )
    services = jvm.org.clonos.spark.executor.Services.current()
    if services is None:
        raise ConfigurationError(
            f"{_SETTING} is 'executors', and executors have not been told so when they started",
            hint="Say it before the session is there, to the builder or to spark-submit, and leave "
            f"{PLUGIN} in spark.plugins, where clonos.configure() puts it",
        )
    return ExecutorServices(services, int(context.getConf().get("spark.executor.instances", "1") or 1))
