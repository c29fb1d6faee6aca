"""Rows of a JSON Lines file, with the types of a schema or, without one, those that their values have."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyarrow import json as arrow_json

from clonos.errors import ConfigurationError
from clonos.operators.types import arrow_schema


def read_rows(path: Path, schema: str | None) -> pa.Table:
    """Raises ConfigurationError where the file cannot be read so."""
    wanted = None if schema is None else arrow_schema(schema)
    options = arrow_json.ParseOptions(
        explicit_schema=wanted, unexpected_field_behavior="infer" if wanted is None else "error"
    )
    try:
        return arrow_json.read_json(str(path), parse_options=options)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise ConfigurationError(
            f"{path} cannot be read as rows: {error}",
            hint="It needs a JSON object per line, with the columns of --schema",
        ) from error
