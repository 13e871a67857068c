"""What the DAGs of one pipeline are made from, whatever they do.

A pipeline file that is wrong still has its DAGs, under the ids and with the tasks that their runs
know; they are called broken, and their tasks fail with what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, AssetAlias, Param

from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError
from airflow_cdc_provider.operators.assets import outlets_of
from airflow_cdc_provider.pipeline.file.folder import FolderFile
from airflow_cdc_provider.pipeline.file.loader import LoadedPipeline, load_pipeline
from airflow_cdc_provider.pipeline.file.model import PipelineFile
from airflow_cdc_provider.pipeline.file.shown import ShownPipeline

SHARED = "pipeline"
"""The field of the form in which a DAG of several pipelines is told which one is meant."""
_CHOSEN = f"params.{SHARED}"
NOT_IN_AN_ID = re.compile(r"[^\w.-]", re.ASCII)
_FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)
RETRIES: Mapping[str, Any] = {
    "retries": 5,
    "retry_delay": timedelta(seconds=20),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=5),
}
"""How often tasks are tried again, and when: servers are away now and then."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the DAGs of one pipeline are made from: file, name, tables, problem."""

    name: str
    path: str
    is_continuous: bool
    doc: str
    outlets: Sequence[Asset | AssetAlias] = ()
    is_compared: bool = True
    """False: verify cannot compare what the sink holds, such as a change log."""
    takes_rows_again: bool = True
    """False: rows that are read again cannot go to the sink, such as a change log."""
    takes_tables: bool = True
    """False: no tables can be added beside the stream, or there is none that stays."""
    problem: StoredError = NO_ERROR
    """Why nothing may start, of a file that is wrong."""
    model: PipelineFile | None = None
    """None: the file cannot be read, and the tasks find out themselves what is wrong with it."""
    file_name: str = ""
    """In the ids of DAGs whose file cannot be read, where another has the pipeline's name."""
    pipelines: tuple[str, ...] = ()
    """Names of the pipelines that a run chooses from; empty: it is always this one."""
    names_of_tables: tuple[str, ...] = ()
    """Tables that the files of these name without a star."""

    @classmethod
    def shared_by(cls, pipelines: Sequence[Parts]) -> Parts:
        """Make the parts for several pipelines, of which each run's form chooses one."""
        paths = {parts.name: parts.path for parts in pipelines}
        tables = {table for parts in pipelines for table in parts.table_names}
        return cls(
            "cdc",
            f"{{{{ {paths!r}[{_CHOSEN}] }}}}",
            is_continuous=all(parts.is_continuous for parts in pipelines),
            doc="",
            pipelines=tuple(sorted(paths)),
            names_of_tables=tuple(sorted(tables)),
        )

    @property
    def shown_name(self) -> str:
        """Return the pipeline's name, or a template of the one that a run chooses."""
        return f"{{{{ {_CHOSEN} }}}}" if self.pipelines else self.name

    @property
    def named(self) -> str:
        """Return how a DAG's documentation names the pipeline."""
        return "a pipeline" if self.pipelines else f"`{self.name}`"

    @property
    def arguments(self) -> dict[str, Any]:
        """Return the arguments that each task gets."""
        given: dict[str, Any] = {"pipeline": self.path, "refused": self.refused}
        return {**given, "is_run_owner": True} if self.pipelines else given

    @classmethod
    def of(cls, pipeline: LoadedPipeline | str | Path) -> Parts:
        """Make the parts from a pipeline file."""
        loaded = pipeline if isinstance(pipeline, LoadedPipeline) else load_pipeline(pipeline)
        model, path = loaded.model, str(loaded.path.resolve())
        is_continuous = model.stream.is_continuous
        return cls(
            model.pipeline,
            path,
            is_continuous,
            _doc(loaded),
            outlets_of(model),
            is_compared=model.sink.abilities.verifiable and not model.stream.stops_at,
            takes_rows_again=model.sink.abilities.replaces_rows and not model.stream.stops_at,
            takes_tables=model.sink.abilities.joins and not model.stream.stops_at,
            model=model,
        )

    @classmethod
    def of_file(cls, file: FolderFile) -> Parts:
        """Make the parts from a file of a folder, also if the file has errors."""
        problem = NO_ERROR if file.problem is None else StoredError.of(file.problem)
        doc = f"**This pipeline cannot be started.**\n\n```\n{problem}\n```"
        if file.loaded is None:
            path, is_continuous = str(file.path.resolve()), file.mode in {"", "continuous"}
            return cls(file.name, path, is_continuous, doc, problem=problem)
        parts = cls.of(file.loaded)
        warned = "".join(f"**To be mended:** {text}\n\n" for text in file.warnings)
        parts = replace(parts, doc=warned + parts.doc)
        return replace(parts, problem=problem, doc=doc) if problem else parts

    def dag_id(self, kind: str) -> str:
        """Return the id of one of the pipeline's DAGs."""
        of_file = f"__{NOT_IN_AN_ID.sub('_', self.file_name)}" if self.file_name else ""
        return f"{self.name}{of_file}__{kind}"

    @property
    def refused(self) -> str:
        """Return the error with which tasks fail that cannot read the file; empty if it is fine."""
        return "" if self.model is None else str(self.problem)

    @property
    def shown(self) -> str:
        """Return the JSON by which the CDC page finds the pipeline."""
        if self.model is None:
            mode = "continuous" if self.is_continuous else "bounded"
            return ShownPipeline(self.name, mode=mode, refused=self.problem).to_text()
        return ShownPipeline.of(self.model, self.path, refused=self.problem).to_text()

    @property
    def table_names(self) -> tuple[str, ...]:
        """Return the tables that the file names without a star."""
        if self.model is None:
            return self.names_of_tables
        return tuple(
            str(exact) for p in self.model.source.patterns if (exact := p.exact) is not None
        )


def new_dag(
    parts: Parts,
    kind: str,
    *,
    schedule: Any,
    default_args: Mapping[str, Any] | None,
    tags: Iterable[str],
    **arguments: Any,
) -> DAG:
    """Make a DAG without tasks; one of a file with errors is named broken."""
    dag_id = parts.dag_id(kind)
    broken = {"broken"} if parts.problem else set()
    if parts.pipelines:
        arguments["params"] = {**_choice(parts), **arguments.get("params", {})}
    return DAG(
        dag_id=dag_id,
        dag_display_name=f"{dag_id} (broken)" if broken else dag_id,
        schedule=schedule,
        start_date=_FIRST_DAY,
        catchup=False,
        default_args={**RETRIES, **(default_args or {})},
        tags=sorted({"cdc", parts.name, *broken, *tags}),
        **{"max_active_runs": 1, "doc_md": parts.doc, **arguments},
    )


def _choice(parts: Parts) -> dict[str, Param]:
    """Return the form's field that chooses the pipeline."""
    return {
        SHARED: Param(
            type="string",
            enum=list(parts.pipelines),
            title="Pipeline",
            description="The pipeline that this run is about.",
        )
    }


def _doc(loaded: LoadedPipeline) -> str:
    """Return the documentation of a pipeline's DAG."""
    model = loaded.model
    tables = ", ".join(f"`{pattern}`" for pattern in model.source.tables)
    return (
        f"Copies {tables} and keeps them in step ({model.stream.mode}).\n\n"
        "Any task may be retried or cleared, and the DAG run again, at any time: what is done is "
        "not done again, and the sink's ledger decides what is done."
    )
