"""Server ids that another file of the folder has as well: refuse the newcomer, never what runs.

A pipeline with a plan is never refused for it. One without is, unless the other has none either
and its file is the newer one. Where the other keeps its state in a place that this run does not
open, it counts as one that runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.findings import Finding, Level, PipelineCode
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.ports import StateReader
from airflow_cdc_provider.pipeline.default_state import default_state_of
from airflow_cdc_provider.pipeline.file.folder import FolderFile, sharing_ids
from airflow_cdc_provider.pipeline.file.loader import LoadedPipeline
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.state.read_only_store import open_read_only


def shared_ids(run: Run, beside: Iterable[FolderFile]) -> Iterator[Finding]:
    """Yield a finding for each file beside this one that has a server id of this pipeline."""
    for other in sharing_ids(run.loaded, [file.loaded for file in beside if file.loaded]):
        ids, theirs = run.model.server_ids, other.model.server_ids
        yield Finding(
            PipelineCode.SOURCE_SERVER_ID_SHARED,
            Level.BLOCK if _gives_way(run, other) else Level.WARN,
            f"source.server_id of {run.loaded.path.name}",
            f"{ids.start}-{ids.stop - 1} overlaps {theirs.start}-{theirs.stop - 1} of "
            f"{other.path.name}, which reads the same source",
            "ids that no other reader of this server has",
            "two readers with one id throw each other out",
            "leave source.server_id out in the newer file, for ids of the pipeline's own",
        )


def is_new(store: StateReader, name: PipelineName) -> bool:
    """Tell whether a pipeline has no plan yet, as before its first run."""
    return not store.tables(name)


def _gives_way(run: Run, other: LoadedPipeline) -> bool:
    """Tell whether this pipeline must change its ids: it is new, and the other is not or older."""
    if not is_new(run.store, run.name):
        return False
    return not _is_new_too(run, other) or _age(run.loaded.path) > _age(other.path)


def _is_new_too(run: Run, other: LoadedPipeline) -> bool:
    """Tell whether the other pipeline has no plan yet either."""
    if other.model.state is not None:
        same = other.model.state == run.model.state
        return same and is_new(run.store, other.model.name)
    try:
        place = default_state_of(other.model, other.path, in_airflow=False)
        with closing(open_read_only(f"sqlite:///{place}")) as store:
            return is_new(store, other.model.name)
    except CdcError:
        return False


def _age(path: Path) -> tuple[int, str]:
    """Return a key that sorts files by time of change, the newer last."""
    return path.stat().st_mtime_ns, path.name
