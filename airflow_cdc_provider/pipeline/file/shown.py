"""What the CDC page must know of a pipeline: its name, where its state is, what it copies.

The API server need not have the pipeline files. So the task that streams carries this in its DAG's
serialised form, as text. It names connections or variables and holds no secret.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.edge_requests import refused_on_edge
from airflow_cdc_provider.core.stored_error import NO_ERROR, StoredError
from airflow_cdc_provider.core.throttle import ThrottleLimits
from airflow_cdc_provider.pipeline.default_state import default_state_of
from airflow_cdc_provider.pipeline.file.model import PipelineFile

if TYPE_CHECKING:
    from airflow_cdc_provider.core.errors import RefusedError
    from airflow_cdc_provider.core.requests import RequestKind


@dataclass(frozen=True, slots=True)
class StatePlace:
    """What names the state store: connection, variable or file; at most one is not empty."""

    conn_id: str = ""
    dsn_env: str = ""
    file: str = ""
    """Of SQLite, where the pipeline file names no state."""

    def __bool__(self) -> bool:
        """Tell whether the place of the state is known."""
        return bool(self.conn_id or self.dsn_env or self.file)


@dataclass(frozen=True, slots=True)
class ShownPipeline:
    """A pipeline as its DAG describes it to the CDC page.

    What a DAG of an older release does not say is empty.
    """

    name: str
    conn_id: str = ""
    dsn_env: str = ""
    file: str = ""
    source: str = ""
    """The connection, or the variable with its DSN."""
    sink: str = ""
    """The connection, the variable or the folder."""
    mode: str = ""
    """`continuous`, `bounded` or `snapshot_only`."""
    topology: str = ""
    """Of which the pipeline is an edge, from `src_node` to `dst_node`."""
    src_node: str = ""
    dst_node: str = ""
    settles: str = ""
    """How conflicts are settled, as text; empty: they are not looked for."""
    freshness_s: int = 0
    """How old the copy may be; 0 where the file does not say."""
    throttle: str = ""
    """How fast the file lets rows be read, as JSON, and whether it names replicas; empty: no limit.
    """
    refused: StoredError = NO_ERROR
    """Why nothing of it may start: its file is wrong, or clashes with another."""

    @classmethod
    def of(
        cls, model: PipelineFile, path: str | Path, *, refused: StoredError = NO_ERROR
    ) -> ShownPipeline:
        """Make the description from a pipeline file."""
        if model.state is None:
            state = default_state_of(model, Path(path), in_airflow=True)
            place = StatePlace(file=str(state))
        else:
            place = StatePlace(model.state.conn_id or "", model.state.dsn_env or "")
        edge = model.edge
        places = () if edge is None else (edge.name, edge.src_node, edge.dst_node, edge.settles)
        return cls(
            model.pipeline,
            place.conn_id,
            place.dsn_env,
            place.file,
            source=model.source.conn_id or model.source.dsn_env or "",
            sink=model.sink.name,
            mode=model.stream.mode,
            **dict(zip(_EDGE, places, strict=False)),
            freshness_s=model.freshness.target_s or 0,
            throttle=_throttle_text(model),
            refused=refused,
        )

    @property
    def edge(self) -> dict[str, str] | None:
        """Return the pipeline's place in a topology as JSON, None if it is no edge."""
        return {key: getattr(self, key) for key in _EDGE} if self.topology else None

    def refusal_of(self, kind: RequestKind) -> RefusedError | None:
        """Return why a request about single tables is refused, None if it is not."""
        if not self.topology:
            return None
        where = f"edge from {self.src_node} to {self.dst_node} of {self.topology}"
        return refused_on_edge(kind, where=where)

    @property
    def file_throttle(self) -> tuple[ThrottleLimits, bool]:
        """Return the limits of the file, and whether it names replicas."""
        form = json.loads(self.throttle or "{}")
        return ThrottleLimits.from_json(form), bool(form.get("has_replicas"))

    @property
    def reads_rows_again(self) -> bool:
        """Tell whether requests may read rows again: an edge must look for conflicts."""
        return not self.topology or bool(self.settles)

    @property
    def place(self) -> StatePlace:
        """Return what names the state store."""
        return StatePlace(self.conn_id, self.dsn_env, self.file)

    def to_text(self) -> str:
        """Return the description as JSON, as a task carries it; later releases only add fields."""
        form = {"pipeline": self.name}
        form |= {key: value for key in _OTHERS if (value := getattr(self, key))}
        if self.refused:
            form["refused"] = self.refused.text
        return json.dumps(form, sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> ShownPipeline | None:
        """Read the description from JSON; None if there is none or it cannot be read."""
        try:
            form = json.loads(text)
            texts = {key: str(form.get(key, "")) for key in _TEXTS}
            freshness_s = int(form.get("freshness_s", 0))
            refused = StoredError(str(form.get("refused", "")))
            return cls(str(form["pipeline"]), **texts, freshness_s=freshness_s, refused=refused)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


def _throttle_text(model: PipelineFile) -> str:
    """Return the file's throttle as JSON, empty where it has none."""
    throttle = model.snapshot.throttle
    if throttle.limits.is_none:
        return ""
    limits = {name: value for name, value in throttle.limits.to_json().items() if value is not None}
    return json.dumps(limits | ({"has_replicas": True} if throttle.replicas else {}))


_EDGE = ("topology", "src_node", "dst_node", "settles")
_TEXTS = ("conn_id", "dsn_env", "file", "source", "sink", "mode", "throttle", *_EDGE)
_OTHERS = (*_TEXTS, "freshness_s")
