"""What an error that tells of a divergence advises, after a look at the user's function."""

from __future__ import annotations

from typing import Any

from clonos.errors import DivergenceError
from clonos.operators.intercept.mentions import mentioned


def advised(error: DivergenceError, made_of: Any, *, intercept: bool) -> DivergenceError:
    """The same error; before its hint stands what the function mentions that is not recorded. `made_of` is the
    operator, or what makes it."""
    try:
        covered, others = mentioned(made_of)
    # Objects of the user may do anything when they are looked at: the error itself must be told
    except Exception:
        return error
    said = []
    if covered and not intercept:
        said.append(
            f"The function mentions {', '.join(covered)}: use ctx.now(), ctx.random or ctx.uuid4(), or set "
            "spark.clonos.intercept to true, which records what it asks for"
        )
    if others:
        said.append(f"The function mentions {', '.join(others)}, which {_CALL}")
    if not said:
        return error
    return DivergenceError(error.message, where=error.where, hint=". ".join([*said, error.hint or ""]))


_CALL = "nothing records: do it in a function of its own, and give that to ctx.call"
