"""What a job has done, as its last line of output says."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

from airflow_cdc_provider.core.errors import CdcError, RefusedError
from airflow_cdc_provider.core.jobspec import JobSpec


class Outcome(StrEnum):
    """How a job ended: finished, stopped or failed."""

    FINISHED = "finished"
    STOPPED = "stopped"
    """It was asked to stop and can go on later."""
    FAILED = "failed"


class ExitCode(IntEnum):
    """The exit code of a job's process."""

    FINE = 0
    REFUSED = 2
    FAILED = 3


@dataclass(frozen=True, slots=True)
class JobResult:
    """What a job did in this run: its counts and, if it failed, its error."""

    pipeline: str
    generation: int
    kind: str
    outcome: Outcome
    seconds: float = 0.0
    tables: int = 0
    splits: int = 0
    rows: int = 0
    changes: int = 0
    transactions: int = 0
    position: str = ""
    """Where the stream is, as the ledger says."""
    consistent: bool = False
    """The stream has passed every table's consistent point."""
    error_code: str = ""
    error: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    """The error as `CdcError.from_json` reads it."""

    @classmethod
    def failed(cls, spec: JobSpec, error: CdcError, seconds: float = 0.0) -> JobResult:
        """Make the result of a job that ended with an error."""
        return cls(
            str(spec.pipeline),
            spec.generation,
            spec.kind.value,
            Outcome.FAILED,
            seconds=seconds,
            error_code=error.code,
            error=str(error),
            facts=error.to_json(),
        )

    @property
    def exit_code(self) -> ExitCode:
        """Return the exit code that this result gives the job's process."""
        if self.outcome is not Outcome.FAILED:
            return ExitCode.FINE
        refused = self.error_code.startswith(RefusedError.code.rpartition("-")[0])
        return ExitCode.REFUSED if refused else ExitCode.FAILED

    def to_json(self) -> str:
        """Return the result as JSON; `from_json` reads it back equal."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> JobResult:
        """Read a result from JSON; fields that only a later release knows are left out."""
        form: dict[str, Any] = json.loads(text)
        known = {field.name for field in dataclasses.fields(cls)}
        kept = {name: value for name, value in form.items() if name in known}
        return cls(**{**kept, "outcome": Outcome(form["outcome"])})
