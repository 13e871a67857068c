"""Skip and accept: what a person decides against a refusal, for good, and so is asked for."""

from __future__ import annotations

from airflow_cdc_provider.cli.commands.opening import Options, confirm, opened
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.overrides import (
    Override,
    accept_source,
    place_to_skip,
    skip_place,
    source_to_accept,
)
from airflow_cdc_provider.views.display import Screen


def skip(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `skip`: go past one place of the log that the stream refuses."""
    at, reason = _given(options, "at"), _given(options, "reason")
    with opened(options, lookup, screen) as run:
        place = place_to_skip(run)
        if place is not None:
            _show(screen, Override.of(place))
            confirm(options, screen, "Go past it, and read these tables again?")
        return _done(run, screen, skip_place(run, at, reason=reason), "the stream goes past it")


def accept(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `accept`: take the history of the source that answers now."""
    reason = _given(options, "reason")
    if not options.source:
        raise RefusedError(
            "it is not said what is accepted",
            where="`accept`",
            risk=NOTHING_CHANGED,
            remedy="write --source: the history of the source that answers now",
        )
    with opened(options, lookup, screen) as run:
        _show(screen, source_to_accept(run))
        confirm(options, screen, "Take this server's history, and read these tables again?")
        done = accept_source(run, reason=reason)
        return _done(run, screen, done, "the stream goes on in this server's log")


def _given(options: Options, name: str) -> str:
    """Return an option's text; refuse if it is missing."""
    text = str(getattr(options, name) or "").strip()
    if not text:
        raise RefusedError(
            f"no {'place' if name == 'at' else name} is given",
            where=f"--{name}",
            risk=NOTHING_CHANGED,
            remedy="write the place as the refusal names it"
            if name == "at"
            else "write why: it is kept with the pipeline's events",
        )
    return text


def _show(screen: Screen, found: Override) -> None:
    """Show what a decision is about: refusal, place, and tables to read again."""
    screen.say(f"refused: {found.what}")
    screen.say(f"where: {found.where}")
    screen.say(f"to be read again: {found.names}")


def _done(run: Run, screen: Screen, done: Override, text: str) -> bool:
    """Show that a decision was recorded."""
    again = f"The next run reads again: {done.names}" if done.tables else "No table is read again"
    line = f"{text}, and it is recorded. {again}."
    form = {
        "pipeline": str(run.name),
        "done": line,
        "refused": done.what,
        "where": done.where,
        "tables": [str(table) for table in done.tables],
    }
    screen.result(form, [line])
    return True
