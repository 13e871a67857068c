"""Where the state of a pipeline is whose file names none: a file of SQLite.

Airflow keeps it under its home, because a DAG folder is often read-only, or replaced by each
deploy; a command outside Airflow keeps it beside the pipeline file. Either one first uses the file
that is there already, beside the pipeline file or under Airflow's home, so both find the same one
on one machine. The command knows Airflow's home as Airflow does: by `AIRFLOW_HOME`, else
`~/airflow`.
"""

from __future__ import annotations

import os
from pathlib import Path

from airflow_cdc_provider.pipeline.file.model import PipelineFile

STATE_SUFFIX = ".state.db"


def airflow_state_folder() -> Path:
    """Return the folder for state files of pipelines that run in Airflow."""
    return Path(os.environ.get("AIRFLOW_HOME") or "~/airflow").expanduser().resolve() / "cdc"


def default_state_of(model: PipelineFile, path: Path, *, in_airflow: bool) -> Path:
    """Return the SQLite file for the state of a pipeline whose file names no state."""
    beside = path.resolve().with_suffix(STATE_SUFFIX)
    in_home = airflow_state_folder() / f"{model.pipeline}{STATE_SUFFIX}"
    if beside.exists():
        return beside
    return in_home if in_airflow or in_home.exists() else beside
