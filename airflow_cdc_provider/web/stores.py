"""State stores that the page has open, one for each DSN, by Airflow's own connections."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from airflow_cdc_provider.core.errors import NOTHING_CHANGED, CdcError, RefusedError
from airflow_cdc_provider.hooks.dsn import AirflowDsns
from airflow_cdc_provider.pipeline.file.model import Reference
from airflow_cdc_provider.pipeline.file.shown import StatePlace
from airflow_cdc_provider.state.read_only_store import NO_STORE, empty_store, open_present
from airflow_cdc_provider.state.store import SqlStateStore

_ASKED_EVERY_S = 30.0
_TRIED_EVERY_S = 10.0
"""A store that could not be opened is left alone for so long: many pipelines may have it."""
_AIRFLOWS_OWN = ("AIRFLOW__", "AIRFLOW_CONN_")
"""Variables that a pipeline may not name: Airflow's settings, its metadata database among them."""


@dataclass(slots=True)
class OpenStores:
    """Opens each state store once; its DSN is looked up again every half minute."""

    _dsns: dict[StatePlace, tuple[float, str]] = field(default_factory=dict, repr=False)
    _stores: dict[str, SqlStateStore] = field(default_factory=dict, repr=False)
    _failed: dict[StatePlace, tuple[float, CdcError]] = field(default_factory=dict)
    _empty: SqlStateStore = field(default_factory=empty_store)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, place: StatePlace, *, was_run: bool = True) -> SqlStateStore:
        """Return the state store of a pipeline; refuse if there is none.

        For a pipeline that never ran an empty store is returned: its first run creates it.
        """
        try:
            return self._of_place(place)
        except CdcError as error:
            if was_run or error.what != NO_STORE:
                raise
            return self._empty

    def _of_place(self, place: StatePlace) -> SqlStateStore:
        """Return the state store at a place; a recent error is raised again."""
        with self._lock:
            tried_s, error = self._failed.get(place, (0.0, None))
        if error is not None and time.monotonic() - tried_s < _TRIED_EVERY_S:
            raise error.with_traceback(None)
        try:
            return self._opened(self._dsn(place))
        except CdcError as fresh:
            with self._lock:
                self._failed[place] = time.monotonic(), fresh
            raise

    def _opened(self, dsn: str) -> SqlStateStore:
        """Return the open state store of a DSN, opened if needed."""
        with self._lock:
            found = self._stores.get(dsn)
        if found is not None:
            return found
        opened = open_present(dsn)
        with self._lock:
            kept = self._stores.setdefault(dsn, opened)
        if kept is not opened:
            opened.close()  # another request was faster
        return kept

    def _dsn(self, place: StatePlace) -> str:
        """Return the DSN of the state at a place; looked up again after a while."""
        now = time.monotonic()
        with self._lock:
            asked_s, dsn = self._dsns.get(place, (-_ASKED_EVERY_S, ""))
        if now - asked_s >= _ASKED_EVERY_S:
            dsn = _dsn_of(place)
            with self._lock:
                self._dsns[place] = now, dsn
        return dsn


def _dsn_of(place: StatePlace) -> str:
    """Find the DSN of the state by what names it: a file, a variable or a connection."""
    if place.file:
        return f"sqlite:///{place.file}"
    if place.dsn_env.startswith(_AIRFLOWS_OWN):
        raise _not_found(f"{place.dsn_env} is one of Airflow's own settings", "name another one")
    dsn = AirflowDsns()(Reference(conn_id=place.conn_id or None, dsn_env=place.dsn_env or None))
    if dsn is None and place.conn_id:
        raise _not_found(
            f"there is no connection {place.conn_id!r}",
            "add it to Airflow, or to the secrets backend that the API server asks",
        )
    if dsn is None:
        raise _not_found(
            f"the environment variable {place.dsn_env} is not set in the API server",
            "set it there, or name a connection in the pipeline file: `state: {conn_id: ...}`",
        )
    return dsn


def _not_found(what: str, remedy: str) -> RefusedError:
    """Return the error for a state store whose DSN is not found."""
    return RefusedError(what, where="state", risk=NOTHING_CHANGED, remedy=remedy)
