"""A lake of each format."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.systems.lake.world import FORMATS, LakeWorld


@pytest.fixture(params=FORMATS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> LakeWorld:
    return LakeWorld(root=tmp_path / "lake", form=request.param)
