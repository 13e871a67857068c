"""Tables of a lake that cannot follow its log while the others do, told as one error behind."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import islice

from airflow_cdc_provider.core.errors import (
    CdcError,
    IntegrityError,
    RefusedError,
    SinkBusyError,
    SinkUnreachableError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.file_log.published import Targets
from airflow_cdc_provider.systems.lake.held import libraries_explained

log = logging.getLogger(__name__)

_HANGS_S = 10.0
_TOLD = 3


class LeftBehind:
    """Gathers what tables are held up by; `raise_any` tells it."""

    def __init__(self, sources: Targets, owned: Collection[TableId]) -> None:
        """`sources`: the tables of the source by those of the lake; `owned`: the stream has them.

        A table that the stream has let go of may be refused: that is only logged.
        """
        self._sources, self._owned = sources, owned
        self._waiting: dict[TableId, CdcError] = {}
        self._refused: dict[TableId, CdcError] = {}

    @contextmanager
    def noting(
        self, table: TableId, told: Callable[[Exception], SinkUnreachableError]
    ) -> Iterator[None]:
        """Note what a table of the lake meets in the block; `told` explains a library's error.

        What takes long to fail is raised at once: the next table would wait as long.
        """
        sources, began_s = self._sources.get(table) or (table,), time.monotonic()
        try:
            with libraries_explained(told):
                yield
        except (RefusedError, IntegrityError) as error:
            if table not in self._owned:
                log.warning("table left behind: table=%s cause=%s", table, error)
                return
            self._refused |= dict.fromkeys(sources, error)
        except (SinkUnreachableError, SinkBusyError) as error:
            self._waiting |= dict.fromkeys(sources, error)
            if time.monotonic() - began_s > _HANGS_S:
                self.raise_any()

    def raise_any(self) -> None:
        """Raise one error about all that was noted: that may pass if some of it may."""
        found = {**self._waiting, **self._refused}
        if not found:
            return
        first, *_ = errors = list(found.values())
        remedy = "; ".join(dict.fromkeys(each.remedy for each in errors))
        raise first.saying(_all_of(errors)).with_remedy(remedy).about(*found)


def _all_of(errors: list[CdcError]) -> str:
    """Return what errors say, each text once, and the first of very many."""
    said = dict.fromkeys(each.what for each in errors)
    more = len(said) - _TOLD
    texts = [*islice(said, _TOLD), *([f"and {more} more"] if more > 0 else [])]
    return "; ".join(texts)
