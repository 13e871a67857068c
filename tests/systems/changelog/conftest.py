"""A change log of each form."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cdc_provider.systems.file_log.files import Format
from tests.systems.changelog.world import ChangelogWorld


@pytest.fixture(params=list(Format))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> ChangelogWorld:
    return ChangelogWorld(root=tmp_path / "log", form=request.param)
