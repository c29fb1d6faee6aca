"""A connection to a store that is made when it is needed, and anew after a failure; what a store raises, told apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from clonos.errors import ClonosError, SinkError, SinkUnavailable

if TYPE_CHECKING:
    from clonos.sinks.store import Store

_T = TypeVar("_T")


class StoreConnection:
    """To one store, for one thread. `place` names it in errors."""

    def __init__(
        self, connect: Callable[[], Store], unavailable: tuple[type[Exception], ...], place: str
    ) -> None:
        self._connect, self._unavailable, self.place = connect, unavailable, place
        self._store: Store | None = None

    def __enter__(self) -> StoreConnection:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def run(self, work: Callable[[Store], _T]) -> _T:
        """Raises SinkUnavailable where another attempt may succeed; what the failed one has changed is not known."""
        try:
            if self._store is None:
                self._store = self._connect()
            return work(self._store)
        except SinkUnavailable:
            self.close()
            raise
        except ClonosError:
            raise
        except self._unavailable as error:
            self.close()
            raise SinkUnavailable(f"{self.place} cannot be used now: {_reason(error)}") from error
        except Exception as error:
            self.close()
            raise SinkError(f"{self.place} refuses: {_reason(error)}") from error

    def close(self) -> None:
        """Never raises: a broken connection may fail to close, and is gone either way."""
        store, self._store = self._store, None
        if store is not None:
            try:
                store.close()
            except Exception:
                return


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
