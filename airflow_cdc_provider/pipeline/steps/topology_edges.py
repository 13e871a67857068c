"""What the folder of a pipeline that is an edge says of its topology, as findings of preflight.

As with other clashes of files, a pipeline with a plan is warned and never refused: a file that was
added must not stop what flows. A new edge is refused, so what is wrong does not begin.
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow_cdc_provider.core.findings import Finding, Level, PipelineCode
from airflow_cdc_provider.pipeline.file.folder import FolderFile, read_folder
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.shared_ids import is_new
from airflow_cdc_provider.pipeline.topologies import FoundProblem, topologies_of


def topology_findings(run: Run) -> Iterator[Finding]:
    """Yield a finding for each problem of the topology that the pipeline is an edge of."""
    edge = run.model.edge
    if edge is None:
        return
    found = topologies_of(_files(run), run.connections)
    blocks = Level.BLOCK if is_new(run.store, run.name) else Level.WARN
    for problem in found.problems:
        if problem.topology in (edge.name, ""):
            yield _finding(problem, Level.WARN if _is_doubt(problem) else blocks)


def _files(run: Run) -> tuple[FolderFile, ...]:
    """Return the files of the pipeline's folder; its own as it was read, and alone without one."""
    here = run.loaded.path.resolve()
    mine = FolderFile(here, str(run.name), run.model.stream.mode, run.loaded)
    others = read_folder(here.parent) if here.parent.is_dir() else ()
    return (mine, *(file for file in others if file.path.resolve() != here))


def _is_doubt(problem: FoundProblem) -> bool:
    """Tell whether a problem is a warning, or of a file that may be no edge at all."""
    return problem.is_warning or not problem.topology


def _finding(problem: FoundProblem, level: Level) -> Finding:
    """Return a problem as a finding."""
    place = f", {problem.place}" if problem.place else ""
    return Finding(
        PipelineCode.TOPOLOGY_EDGES,
        level,
        f"{problem.file}, line {problem.line}{place}",
        problem.what,
        "edges by which each change comes to each node once",
        "it was not looked at, or may not be meant"
        if _is_doubt(problem)
        else "changes would be lost, or go round for ever",
        problem.fix,
    )
