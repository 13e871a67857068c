"""What the folder of a pipeline that is an edge says of its topology, as findings of preflight.

As with other clashes of files, a pipeline with a plan is warned and never refused: a file that was
added must not stop what flows. A new edge is refused, so what is wrong does not begin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow_cdc_provider.core.findings import Finding, Level, PipelineCode
from airflow_cdc_provider.pipeline.file.folder import FolderFile
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.shared_ids import is_new
from airflow_cdc_provider.pipeline.topologies import FoundProblem, topologies_of


def topology_findings(run: Run, beside: Sequence[FolderFile]) -> Iterator[Finding]:
    """Yield a finding for each problem of the topology that the pipeline is an edge of.

    A pipeline that is none is told where it copies from node to node past the edges.
    """
    edge = run.model.edge
    mine = FolderFile(run.loaded.path, str(run.name), run.model.stream.mode, run.loaded)
    if edge is None:
        edges = [file for file in beside if file.loaded and file.loaded.model.edge is not None]
        found = topologies_of((mine, *edges), run.connections).problems if edges else ()
        concerning = [each for each in found if each.file == run.loaded.path.name]
    else:
        found = topologies_of((mine, *beside), run.connections).problems
        concerning = [each for each in found if each.topology in (edge.name, "")]
    blocks = Level.BLOCK if is_new(run.store, run.name) else Level.WARN
    for problem in concerning:
        yield _finding(problem, Level.WARN if _is_doubt(problem) else blocks)


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
