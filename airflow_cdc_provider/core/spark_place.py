"""Where a job's Spark can be looked at, as its driver tells it among the pipeline's events."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from airflow_cdc_provider.core.records import PipelineEvent

_TEXT = re.compile(r"spark application (\S+) under generation (\d+)(?:, ui (\S+))?")


@dataclass(frozen=True, slots=True)
class SparkPlace:
    """The Spark application of a job: its id, and its UI's address."""

    application: str
    generation: int
    ui: str = ""
    """Its address while it runs; empty where the UI is off."""

    def __str__(self) -> str:
        ui = f", ui {self.ui}" if self.ui else ""
        return f"spark application {self.application} under generation {self.generation}{ui}"

    @classmethod
    def find(cls, events: Iterable[PipelineEvent], generation: int) -> SparkPlace | None:
        """Return a generation's Spark application from the events, None if there is none."""
        for event in events:
            told = _TEXT.fullmatch(event.text)
            if told is not None and int(told[2]) == generation:
                return cls(told[1], generation, told[3] or "")
        return None

    def history(self, server: str) -> str:
        """Return the application's page on a history server; empty without a server."""
        return f"{server.rstrip('/')}/history/{self.application}/" if server else ""
