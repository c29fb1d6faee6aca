"""Rows that a sink has written as JSON objects, as Spark reads them back: as they were, or not at all."""

from __future__ import annotations

from typing import Any, Final

from clonos.errors import QueryDefinitionError

_POLICY: Final = "spark.sql.legacy.timeParserPolicy"
_OPTIONS: Final = {"mode": "FAILFAST", "columnNameOfCorruptRecord": "_clonos_corrupt_record"}


def rows_from_json(lines: Any, schema: Any) -> Any:
    """The columns of a DataFrame's text column `value`. Raises QueryDefinitionError where they would not be those that
    were written."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as f

    if str(lines.sparkSession.conf.get(_POLICY)).upper() == "LEGACY":
        raise QueryDefinitionError(
            f"with {_POLICY}=LEGACY Spark reads fractions of seconds as other ones, and rows that go round or wait for "
            "foreachBatch are read again",
            hint=f"Set {_POLICY} to CORRECTED",
        )
    try:
        return lines.select(f.from_json("value", schema, _OPTIONS).alias("row")).select("row.*")
    except AnalysisException as error:
        raise QueryDefinitionError(
            f"rows with these columns cannot be read back from JSON: {str(error).strip().splitlines()[0]}",
            hint="Make it a column that can be, such as a list of structs in place of a map whose keys are no text",
        ) from None
