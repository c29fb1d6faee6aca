"""Where things are as the JVM sees it: with Hadoop's default file system and the JVM's own working directory.

Python may have changed its directory since the JVM was started, and Hadoop escapes nothing: each would look at a folder
of its own. So a place is asked for once, when a query is built or starts, and both use the answer.
"""

from __future__ import annotations

import re
from typing import Any

from clonos.errors import ConfigurationError
from clonos.spark.store_settings import store_settings
from clonos.storage import object_store
from clonos.storage.location import parts_of

_FILE = re.compile(r"^file:(//)?(?=/)")


def qualified(spark: Any, location: str) -> str:
    """A location in full, as Spark itself resolves it. Raises ConfigurationError where Hadoop does not take it."""
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    try:
        path = spark._jvm.org.apache.hadoop.fs.Path(location)
        return str(path.getFileSystem(conf).makeQualified(path).toString())
    except Exception as error:  # whatever Hadoop or a file system of it raises
        raise ConfigurationError(
            f"Spark cannot use the location {location!r}: {_reason(error)}",
            hint="Use a path, or a URI of a file system that this Spark session has, such as file:///folder",
        ) from error


def checkpoint_location(spark: Any, location: str) -> str:
    """`qualified`, and this process uses an object store there as the session does."""
    location = qualified(spark, location)
    object_store.use(store_settings(location, spark._jsparkSession.sessionState().newHadoopConf().get))
    return location


def stores_of(location: str) -> dict[str, object_store.Options]:
    """What this process was told of the object store of a location, if it is in one."""
    scheme, _, rest = location.partition(":")
    if scheme.lower() not in object_store.SCHEMES:
        return {}
    return object_store.said(object_store.name_of(scheme, parts_of(rest)[0].removeprefix("//")))


def source_path(spark: Any, path: str, *, embedded: bool) -> str:
    """The path of a source in full: of the `embedded` log as the plugin opens it, else as Hadoop does. One on this host
    has no scheme."""
    if embedded:
        return str(spark._jvm.java.io.File(_FILE.sub("", path)).getAbsolutePath())
    try:
        path = qualified(spark, path)
    except ConfigurationError:  # the source has a meaning of its own for it
        return path
    return _FILE.sub("", path)


def check_same(query: Any, location: str) -> None:
    """Raises ConfigurationError where a Spark query that was started keeps its log elsewhere: none of its commits would
    be seen."""
    theirs = str(query._jsq.streamingQuery().resolvedCheckpointRoot())
    if theirs != location:
        raise ConfigurationError(
            f"Spark keeps the log of the query in {theirs}, and the checkpoint is {location}",
            hint="Give the checkpointLocation in full, as the first of them",
        )


def _reason(error: Exception) -> str:
    """What Java says, without its trace."""
    cause = getattr(error, "java_exception", None)
    return str(cause.toString() if cause is not None else error).strip().splitlines()[0]
