"""How fast rows may be read: what a person or a task wants, in place of what the file says."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.core.throttle import ThrottleWish
from airflow_cdc_provider.core.wrong_value import WrongValueError
from airflow_cdc_provider.pipeline.file.field_types import duration_text, seconds_of
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.state.throttling import wish_throttle

NONE = "none"
"""Takes a limit away."""


def change_throttle(run: Run, wish: Mapping[str, float | None], *, by: str) -> ThrottleWish:
    """Store other limits than the file's; an empty `wish` lets the file's hold again."""
    section = run.model.snapshot.throttle
    file = (section.limits, bool(section.replicas))
    return wish_throttle(run.store, run.name, wish, file=file, by=by)


def limits_of(
    values: Mapping[str, object], *, where: Callable[[str], str] = str
) -> Mapping[str, float | None]:
    """Parse limits by the keys of the file; None, or `none`, takes one away.

    `where` names a key in the error for a wrong value.
    """
    return {
        _FIELDS.get(name, name): _parsed(name, value, where(name)) for name, value in values.items()
    }


def _parsed(name: str, value: object, where: str) -> float | None:
    """Return the value of a limit; None takes it away."""
    text = NONE if value is None else str(value).strip()
    if text.lower() == NONE:
        return None
    try:
        limit = KEYS[name](text)
        if not 0 < limit < float("inf"):
            raise ValueError(text)
    except KeyError:
        raise _refused(f"there is no limit {name!r}", where, f"write {', '.join(KEYS)}") from None
    except WrongValueError as wrong:
        raise _refused(wrong.what, where, f"{wrong.fix}, or {NONE}") from None
    except ValueError:
        fix = f"write a number above 0, or {NONE} to take the limit away"
        raise _refused(f"{text!r} is no limit", where, fix) from None
    return limit


def _refused(what: str, where: str, remedy: str) -> RefusedError:
    """Return the error for a wrong limit."""
    return RefusedError(what, where=where, risk=NOTHING_CHANGED, remedy=remedy)


def _lag_s(text: str) -> float:
    """Return a span of time such as `10s` in seconds."""
    return float(seconds_of(duration_text(text)))


KEYS: Mapping[str, Callable[[str], float]] = {
    "rows_per_second": float,
    "mb_per_second": float,
    "max_threads_running": int,
    "critical_threads_running": int,
    "max_replica_lag": _lag_s,
}
"""The limits by their keys in the file."""
_FIELDS = {"max_replica_lag": "max_replica_lag_s"}
