"""Pause, resume, restart and the rest of a pipeline's life, as a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Context

from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.hooks.lifecycle_hook import (
    CONFIRMED,
    OF_TABLES,
    Action,
    act,
    action_of,
    tables_of,
    throttle,
)
from airflow_cdc_provider.operators.base import CdcOperator, airflow_errors
from airflow_cdc_provider.operators.params import require_known_params


class CdcControlOperator(CdcOperator):
    """
    Run a command on a pipeline or its tables: pause, resume, throttle, add, remove and the rest.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    :param action: `pause`, `resume`, `restart`, `add`, `remove`, `reset`, `drop` or `throttle`
        (templated).
    :param tables: only these, as `database.table`; the pipeline itself without any (templated).
    :param confirm: the pipeline's name, without which `reset` and `drop` do nothing (templated).
    :param drop_target: `remove` drops the tables at the sink as well, with their rows.
    :param wait_s: for how many seconds the owner is waited for; a `pause` or `restart` that is
        not heeded by then fails the task, whose retries wait on.
    :param limits: of `throttle`: limits by their keys in the file, None takes one away; without
        any those of the file hold again (templated).
    """

    template_fields = ("pipeline", "action", "tables", "confirm", "limits")
    confirmed = CONFIRMED
    """Actions that have to be confirmed."""

    def __init__(
        self,
        *,
        action: str,
        tables: Sequence[str] | None = None,
        confirm: str = "",
        drop_target: bool = False,
        wait_s: float = 60.0,
        limits: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.action = action
        self.tables = tables
        self.confirm = confirm
        self.drop_target = drop_target
        self.wait_s = wait_s
        self.limits = limits

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002
        """Run the command, if it is confirmed where it must be, and return what was done."""
        with airflow_errors(self.pipeline):
            action, tables = action_of(self.action), tables_of(self.tables or ())
            if self.limits and action is not Action.THROTTLE:
                raise RefusedError(
                    f"`{action}` takes no limits",
                    where=f"task {self.task_id}",
                    risk=NOTHING_CHANGED,
                    remedy="leave limits out, or write action: throttle",
                )
        with self.opened() as steps:
            name = str(steps.run.name)
            if action in self.confirmed and self.confirm != name:
                raise RefusedError(
                    f"`{action}` of {name} is not confirmed",
                    where=f"task {self.task_id}",
                    risk=NOTHING_CHANGED,
                    remedy=f"give the task confirm={name!r}",
                )
            if action is Action.THROTTLE:
                done = throttle(steps, tables, self.limits or {})
            else:
                done = act(steps, action, tables, wait_s=self.wait_s, drop_target=self.drop_target)
            self.log.info("%s", done)
            state = steps.run.store.ensure(steps.run.name)
        return {
            "pipeline": name,
            "action": action.value,
            "tables": [str(table) for table in tables],
            "done": done,
            "wanted": state.wanted.value,
            "phase": state.phase.value,
        }


class CdcTablesOperator(CdcControlOperator):
    """
    Change single tables as the run's form says: `action`, `tables` and `drop_target`.

    :param pipeline: path of the pipeline's YAML file (templated).
    :param refused: why the task may do nothing; it then fails with these words.
    :param wait_s: for how many seconds the owner is waited for.
    """

    confirmed = frozenset()
    """Who fills the form names the tables."""

    def __init__(self, *, wait_s: float = 600.0, **kwargs: Any) -> None:
        super().__init__(action="", wait_s=wait_s, **kwargs)

    def execute(self, context: Context) -> dict[str, Any]:
        """Read the run's form, and run its action on the tables."""
        with airflow_errors(self.pipeline):
            require_known_params(context)
            params = context["params"]
            self.action, self.tables = str(params["action"]), params.get("tables") or ()
            self.drop_target = bool(params.get("drop_target"))
            self._require_of_tables()
        return super().execute(context)

    def _require_of_tables(self) -> None:
        """Refuse an action on the whole pipeline."""
        action = action_of(self.action)
        if action not in OF_TABLES or not (self.tables or action is Action.ADD):
            raise RefusedError(
                f"no table is named to {action}",
                where="form of the run",
                risk=NOTHING_CHANGED,
                remedy="name tables as database.table",
            )
