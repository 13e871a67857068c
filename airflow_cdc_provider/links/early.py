"""Links that are there while a task runs: Airflow itself stores them when it has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context


def push_links(context: Context, operator: BaseOperator) -> None:
    """Store the operator's links where Airflow looks for them."""
    ti: Any = context.get("ti")
    if ti is None:  # called by hand, without a run
        return
    for link in operator.operator_extra_links:
        ti.xcom_push(key=link.xcom_key, value=link.get_link(operator, ti_key=ti))
