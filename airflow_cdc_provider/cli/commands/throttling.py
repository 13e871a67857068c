"""Throttle: show how fast rows may be read, or change it while the pipeline runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from airflow_cdc_provider.cli.commands.opening import Options, opened, status_of
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.core.throttle import FROM_FILE
from airflow_cdc_provider.core.wrong_value import WrongValueError
from airflow_cdc_provider.pipeline.file.field_types import duration_text, seconds_of
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.range_requests import this_person
from airflow_cdc_provider.state.throttling import OFF, throttle_wish, wish_throttle
from airflow_cdc_provider.views.display import Screen
from airflow_cdc_provider.views.throttle import ThrottleView

_NONE = "none"
"""Takes a limit away."""


def throttle(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `throttle`: show the limits that hold, or change them."""
    wish = _wish(options)
    with opened(options, lookup, screen) as run:
        section = run.model.snapshot.throttle
        if wish is not None:
            file = (section.limits, bool(section.replicas))
            wish_throttle(run.store, run.name, wish, file=file, by=this_person())
        found = _holding(run)
        screen.result(
            {"pipeline": str(run.name), "throttle": found.to_json()},
            [found.text or f"throttle: no limit ({found.origin})", *_when(run, wish)],
        )
    return True


def _when(run: Run, wish: Mapping[str, float | None] | None) -> list[str]:
    """Say when a change holds."""
    if wish is None:
        return []
    state = run.store.ensure(run.name)
    is_owned = state.lease_until_us > run.store.now_us()
    return [
        f"{state.owner} takes it up within seconds, if it reads rows"
        if is_owned
        else "nobody runs the pipeline now; who does next takes it up"
    ]


def _holding(run: Run) -> ThrottleView:
    """Return the limits that hold: those of a running owner, else a wish over those of the file."""
    found, wish = status_of(run).throttle, throttle_wish(run.store, run.name)
    limits = run.model.snapshot.throttle.limits
    wanted = limits if wish is None else wish.over(limits)
    if found is not None and found.is_reading and found.limits == wanted:
        return found
    return ThrottleView(wanted, FROM_FILE if wish is None else wish.origin, is_reading=False)


def _wish(options: Options) -> Mapping[str, float | None] | None:
    """Return what the options change, None if they change nothing; refuse what contradicts."""
    options_of = {name: getattr(options, name) for name in _PARSERS}
    given = {name: text for name, text in options_of.items() if text is not None}
    ways = [options.off, options.from_file, bool(given)]
    if sum(ways) > 1:
        raise RefusedError(
            "limits, --off and --from-file are given together",
            where="`throttle`",
            risk=NOTHING_CHANGED,
            remedy="give limits, or --off for none at all, or --from-file for those of the file",
        )
    if options.off:
        return OFF
    if options.from_file:
        return {}
    return {_FIELDS.get(name, name): _parsed(name, text) for name, text in given.items()} or None


def _parsed(name: str, text: str) -> float | None:
    """Return the value of an option; None takes the limit away."""
    if text.strip().lower() == _NONE:
        return None
    flag = f"--{name.replace('_', '-')}"
    try:
        value = _PARSERS[name](text)
        if value <= 0:
            raise ValueError(text)
    except WrongValueError as wrong:
        raise RefusedError(
            wrong.what, where=flag, risk=NOTHING_CHANGED, remedy=f"{wrong.fix}, or {_NONE}"
        ) from None
    except ValueError:
        raise RefusedError(
            f"{text!r} is no limit",
            where=flag,
            risk=NOTHING_CHANGED,
            remedy=f"write a number above 0, or {_NONE} to take the limit away",
        ) from None
    return value


def _lag_s(text: str) -> float:
    """Return a span of time such as `10s` in seconds."""
    return float(seconds_of(duration_text(text)))


_PARSERS: Mapping[str, Callable[[str], float]] = {
    "rows_per_second": float,
    "mb_per_second": float,
    "max_threads_running": int,
    "critical_threads_running": int,
    "max_replica_lag": _lag_s,
}
_FIELDS = {"max_replica_lag": "max_replica_lag_s"}
