"""What the CDC page must know of a pipeline to look at it: its name, and where its state is.

The API server need not have the pipeline files. So the task that streams carries this in its DAG's
serialised form, as text. It names a connection or a variable and holds no secret.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from airflow_cdc_provider.pipeline.default_state import default_state_of
from airflow_cdc_provider.pipeline.file.model import PipelineFile


@dataclass(frozen=True, slots=True)
class ShownPipeline:
    """A pipeline as a DAG names it; of the three last ones at most one is not empty."""

    name: str
    conn_id: str = ""
    dsn_env: str = ""
    file: str = ""
    """Of SQLite, where the pipeline file names no state."""

    @classmethod
    def of(cls, model: PipelineFile, path: str | Path) -> ShownPipeline:
        """Take it from a pipeline file."""
        if model.state is None:
            file = default_state_of(model, Path(path), in_airflow=True)
            return cls(model.pipeline, file=str(file))
        return cls(model.pipeline, model.state.conn_id or "", model.state.dsn_env or "")

    def to_text(self) -> str:
        """Return the form in which a task carries it; the form only grows."""
        form = {"pipeline": self.name}
        form |= {key: text for key in _PLACES if (text := getattr(self, key))}
        return json.dumps(form, sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> ShownPipeline | None:
        """Read what `to_text` wrote; None if there is none, or of another making."""
        try:
            form = json.loads(text)
            places = {key: str(form.get(key, "")) for key in _PLACES}
            return cls(str(form["pipeline"]), **places)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


_PLACES = ("conn_id", "dsn_env", "file")
