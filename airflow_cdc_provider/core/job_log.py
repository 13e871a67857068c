"""Where the log of a pipeline's job is, as the run that started the job says in the events."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from airflow_cdc_provider.core.records import PipelineEvent

_TEXT = re.compile(r"\w+ job started under generation (\d+) on \S+, log (.+?)(?: on host (\S+))?")


@dataclass(frozen=True, slots=True)
class JobLog:
    """The log of the newest job under a generation: its file, and the host that has it."""

    path: str
    host: str = ""
    """Empty where an earlier release started the job."""

    def __str__(self) -> str:
        return f"log {self.path} on host {self.host}"

    @classmethod
    def find(cls, events: Iterable[PipelineEvent], generation: int) -> JobLog | None:
        """Return the log of a generation's newest job from its events, the newest first."""
        for event in events:
            found = _TEXT.fullmatch(event.text)
            if found is not None and int(found[1]) == generation:
                return cls(found[2], found[3] or "")
        return None
