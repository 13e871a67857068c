"""What a person gives a run: Airflow checks what it knows, and takes whatever else is given."""

from __future__ import annotations

import difflib

from airflow.sdk import Context

from airflow_cdc_provider.operators.log_errors import failure


def require_known_params(context: Context) -> None:
    """Refuse a run with parameters that its DAG does not have: they would be ignored."""
    run = context.get("dag_run")
    known = list(context["dag"].params)
    for name in sorted(getattr(run, "conf", None) or {}):
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(known)}"
            raise failure(f"the run was given {name!r}, which is not known: {hint}")
