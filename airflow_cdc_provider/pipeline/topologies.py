"""The topologies of a folder of pipeline files, and what is wrong with them, by file and line.

Whether two names are one server is asked of nobody: host and port of the connections are compared,
where they are known to who asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_cdc_provider.core.endpoint import LOOPBACK, Endpoint
from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.topology_check import by_topology, check_topologies
from airflow_cdc_provider.core.topology_edges import (
    EdgeFile,
    EdgeProblem,
    PipelineEnds,
    ServerName,
    TableScope,
)
from airflow_cdc_provider.pipeline.connections import DsnOf
from airflow_cdc_provider.pipeline.file.folder import FolderFile
from airflow_cdc_provider.pipeline.file.loader import LoadedPipeline
from airflow_cdc_provider.pipeline.file.model import PipelineFile, Reference
from airflow_cdc_provider.pipeline.file.problems import Problem


@dataclass(frozen=True, slots=True)
class FoundProblem:
    """A problem of a folder's topologies, with its line."""

    file: str
    line: int
    place: str
    """The key, as `topology.dst_node`; empty for a whole file."""
    what: str
    fix: str
    is_warning: bool
    topology: str
    """The topology's name; empty where a file that cannot be read may be of any."""

    def to_json(self) -> dict[str, Any]:
        """Return the problem as plain values."""
        return {
            "file": self.file,
            "line": self.line,
            "key": self.place,
            "level": "warn" if self.is_warning else "block",
            "what": self.what,
            "fix": self.fix,
        }

    def __str__(self) -> str:
        place = f", {self.place}" if self.place else ""
        return f"{self.file}:line {self.line}{place}: {self.what}. Fix: {self.fix}"


@dataclass(frozen=True, slots=True)
class FolderTopologies:
    """The edges of a folder's files, by topology, and what is wrong with them."""

    edges: Mapping[str, Sequence[EdgeFile]]
    pipelines: Mapping[str, str]
    """The name of each edge's pipeline, by its file."""
    problems: tuple[FoundProblem, ...]

    @property
    def blocks(self) -> tuple[FoundProblem, ...]:
        """Return the problems by which changes would be lost, or go round."""
        return tuple(problem for problem in self.problems if not problem.is_warning)


def topologies_of(files: Iterable[FolderFile], dsn_of: DsnOf | None) -> FolderTopologies:
    """Return the topologies of a folder's files; `dsn_of` is None where no server is known."""
    files = tuple(files)
    loaded = {file.path.name: file.loaded for file in files if file.loaded is not None}
    servers = _Servers(dsn_of)
    ends = {name: _ends(name, each.model, servers) for name, each in loaded.items()}
    edges = [
        EdgeFile(each.model.edge, ends[name], each.model.schema_changes.from_node or "")
        for name, each in loaded.items()
        if each.model.edge is not None
    ]
    others = [ends[name] for name, each in loaded.items() if each.model.edge is None]
    found = [_found(loaded[each.file], each) for each in check_topologies(edges, others)]
    found += [_unread(file) for file in files if file.loaded is None and _may_be_edge(file.path)]
    return FolderTopologies(
        by_topology(edges),
        {each.file: str(loaded[each.file].model.name) for each in edges},
        tuple(sorted(found, key=lambda each: (each.is_warning, each.file, each.line))),
    )


class _Servers:
    """Finds the server of a reference; each reference is looked up once."""

    def __init__(self, dsn_of: DsnOf | None) -> None:
        self._dsn_of = dsn_of
        self._known: dict[str, ServerName] = {}

    def of(self, reference: Reference) -> ServerName:
        """Return a server by its reference, with its address where that is known."""
        by_name = f"dsn_env {reference.dsn_env}" if reference.dsn_env else ""
        name = by_name or f"conn_id {reference.conn_id}"
        if name not in self._known:
            self._known[name] = ServerName(name, self._address_of(reference))
        return self._known[name]

    def _address_of(self, reference: Reference) -> str:
        """Return where a server is, empty if that is not known."""
        try:
            dsn = None if self._dsn_of is None else self._dsn_of(reference)
            return _address(Endpoint.parse(dsn)) if dsn else ""
        except (CdcError, ValueError):
            return ""  # its own check says what is wrong with it


def _ends(file: str, model: PipelineFile, servers: _Servers) -> PipelineEnds:
    """Return the servers that a pipeline joins, and its tables."""
    sink = model.sink.reference
    return PipelineEnds(
        file,
        servers.of(model.source),
        ServerName("") if sink is None else servers.of(sink),
        TableScope(model.source.patterns, model.source.excluded, model.sink.routes),
    )


def _address(server: Endpoint) -> str:
    """Return where a server is; the names of this machine count as one."""
    if server.unix_socket:
        return server.unix_socket
    return f"{'localhost' if server.host in LOOPBACK else server.host}:{server.port}"


def _found(loaded: LoadedPipeline, problem: EdgeProblem) -> FoundProblem:
    """Return a problem with the line of its key."""
    shown = Problem(loaded.line_of(problem.key), problem.key, problem.what, problem.fix)
    return FoundProblem(
        problem.file,
        shown.line,
        shown.place,
        problem.what,
        problem.fix,
        problem.is_warning,
        problem.topology,
    )


def _may_be_edge(path: Path) -> bool:
    """Tell whether a file that is refused may be an edge of a topology."""
    try:
        return b"topology" in path.read_bytes()
    except OSError:
        return True


def _unread(file: FolderFile) -> FoundProblem:
    """Return the problem that a file of the folder is refused, so its edge is not known."""
    what = "" if file.problem is None else f": {file.problem.what}"
    return FoundProblem(
        file.path.name,
        1,
        "",
        f"the file is refused, so which edge it is was not looked at{what}",
        "correct it",
        is_warning=False,
        topology="",
    )
