"""The commands of a pipeline's life, as operators give them; see `steps` for the late imports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.hooks.steps import CdcSteps


class Action(StrEnum):
    """The commands that a task can give to a pipeline."""

    PAUSE = "pause"
    RESUME = "resume"
    RESTART = "restart"
    ADD = "add"
    REMOVE = "remove"
    RESET = "reset"
    DROP = "drop"
    THROTTLE = "throttle"


OF_TABLES = frozenset({Action.PAUSE, Action.RESUME, Action.ADD, Action.REMOVE, Action.RESET})
"""What single tables can be told, too."""
CONFIRMED = frozenset({Action.RESET, Action.DROP})
"""What has to be confirmed: rows are read again, or forgotten."""


def action_of(text: str) -> Action:
    """Parse an action; refuse an unknown one."""
    try:
        return Action(text.strip().lower())
    except ValueError:
        known = ", ".join(Action)
        raise _refused(f"there is no action {text!r}", f"write one of {known}") from None


def tables_of(names: Sequence[str]) -> tuple[TableId, ...]:
    """Parse names of tables; refuse a wrong one."""
    try:
        return tuple(map(TableId.parse, names))
    except ValueError as error:
        raise _refused(str(error), "write database.table") from None


def act(
    steps: CdcSteps,
    action: Action,
    tables: Sequence[TableId],
    *,
    wait_s: float,
    drop_target: bool = False,
) -> str:
    """Run an action on a pipeline or its tables, give the lease back, and describe the result."""
    from airflow_cdc_provider.pipeline.run import give_back  # noqa: PLC0415 - see above

    if tables and action not in OF_TABLES:
        raise _refused(f"`{action}` is for the whole pipeline", "leave the tables out")
    if action is Action.REMOVE and not tables:
        raise _refused("`remove` is for tables", "name those that are not picked any more")
    try:
        if tables and action in {Action.PAUSE, Action.RESUME}:
            return _stop_or_bring_back(steps, action, tables, wait_s)
        if action is Action.REMOVE:
            return _remove(steps, tables, wait_s, drop_target=drop_target)
        return _COMMANDS[action](steps, tables, wait_s)
    finally:
        give_back(steps.run)


def throttle(steps: CdcSteps, tables: Sequence[TableId], limits: Mapping[str, object]) -> str:
    """Change how fast rows may be read, and describe it; no limits: those of the file hold."""
    from airflow_cdc_provider.pipeline.steps.throttling import (  # noqa: PLC0415 - see above
        change_throttle,
        limits_of,
    )

    if tables:
        raise _refused("`throttle` is for the whole pipeline", "leave the tables out")
    wish = limits_of(limits, where=lambda name: f"limits, {name}")
    found = change_throttle(steps.run, wish, by=steps.run.owner)
    return f"throttle: {found.limits} ({found.origin})"


def _stop_or_bring_back(
    steps: CdcSteps, action: Action, tables: Sequence[TableId], wait_s: float
) -> str:
    """Pause or resume single tables."""
    from airflow_cdc_provider.pipeline.steps import pause_tables  # noqa: PLC0415 - see above

    ask = pause_tables.pause_tables if action is Action.PAUSE else pause_tables.resume_tables
    return pause_tables.outcome_of(steps.run, ask(steps.run, tables), wait_s=wait_s)


def _pause(steps: CdcSteps, _: Sequence[TableId], wait_s: float) -> str:
    """Pause the pipeline; raise if its owner has not stopped in time."""
    from airflow_cdc_provider.pipeline.steps import pausing  # noqa: PLC0415 - see above

    return pausing.pause(steps.run, wait_s=wait_s)


def _resume(steps: CdcSteps, _: Sequence[TableId], __: float) -> str:
    """Allow the pipeline to run again."""
    from airflow_cdc_provider.pipeline.steps import pausing  # noqa: PLC0415 - see above

    return pausing.resume(steps.run)


def _restart(steps: CdcSteps, _: Sequence[TableId], wait_s: float) -> str:
    """Have the pipeline's owner begin again from the ledger."""
    from airflow_cdc_provider.pipeline.steps import pausing  # noqa: PLC0415 - see above

    return pausing.restart(steps.run, wait_s=wait_s)


def _add(steps: CdcSteps, tables: Sequence[TableId], wait_s: float) -> str:
    """Add tables to the stream."""
    from airflow_cdc_provider.pipeline.steps import table_requests  # noqa: PLC0415 - see above

    return table_requests.add(steps.run, tables, wait_s=wait_s)


def _remove(steps: CdcSteps, tables: Sequence[TableId], wait_s: float, *, drop_target: bool) -> str:
    """Remove tables from the stream."""
    from airflow_cdc_provider.pipeline.steps import table_requests  # noqa: PLC0415 - see above

    return table_requests.remove(steps.run, tables, drop_targets=drop_target, wait_s=wait_s)


def _reset(steps: CdcSteps, tables: Sequence[TableId], wait_s: float) -> str:
    """Reset tables, or the whole pipeline."""
    from airflow_cdc_provider.pipeline.steps.reset_drop import (  # noqa: PLC0415 - see above
        begin_again,
    )

    return begin_again(steps.run, tables, wait_s=wait_s)


def _drop(steps: CdcSteps, _: Sequence[TableId], __: float) -> str:
    """Delete the pipeline's state and ledger rows."""
    from airflow_cdc_provider.pipeline.steps.reset_drop import drop  # noqa: PLC0415 - see above

    return drop(steps.run)


Command = Callable[[CdcSteps, Sequence[TableId], float], str]
_COMMANDS: dict[Action, Command] = {
    Action.PAUSE: _pause,
    Action.RESUME: _resume,
    Action.RESTART: _restart,
    Action.ADD: _add,
    Action.RESET: _reset,
    Action.DROP: _drop,
}


def _refused(what: str, remedy: str) -> RefusedError:
    """Return the error for a wrong action or table."""
    return RefusedError(what, where="what the task asks", risk=NOTHING_CHANGED, remedy=remedy)
