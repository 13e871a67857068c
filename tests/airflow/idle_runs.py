"""Runs that may start no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.pipeline.without_spark import NO_SPARK

if TYPE_CHECKING:
    import pytest

    from tests.pipeline.conftest import Shop


def without_spark(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pipeline's Spark answer nowhere."""
    for name, dsn in shop.environment.items():
        monkeypatch.setenv(name, dsn)
    monkeypatch.setenv("AIRFLOW__CDC__JOB_LOG_FOLDER", str(shop.path.parent / "logs"))
    with shop.path.open("a") as file:
        file.write(f"spark:\n  conf: {{spark.master: '{NO_SPARK}'}}\n")
