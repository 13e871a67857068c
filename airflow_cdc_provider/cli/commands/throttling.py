"""Throttle: show how fast rows may be read, or change it while the pipeline runs."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_cdc_provider.cli.commands.opening import Options, opened, status_of
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.core.throttle import FROM_FILE
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.range_requests import this_person
from airflow_cdc_provider.pipeline.steps.throttling import KEYS, change_throttle, limits_of
from airflow_cdc_provider.state.throttling import OFF, throttle_wish
from airflow_cdc_provider.views.display import Screen
from airflow_cdc_provider.views.throttle import ThrottleView


def throttle(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `throttle`: show the limits that hold, or change them."""
    wish = _wish(options)
    with opened(options, lookup, screen) as run:
        if wish is not None:
            change_throttle(run, wish, by=this_person())
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
    values = {name: getattr(options, name) for name in KEYS}
    given = {name: text for name, text in values.items() if text is not None}
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
    return limits_of(given, where=lambda name: f"--{name.replace('_', '-')}") or None
