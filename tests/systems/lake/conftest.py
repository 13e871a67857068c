"""A lake of each format, whose tables hold each change, or the current rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.systems.lake.world import FORMATS, LakeWorld

MIRRORS = [f"{form}_mirror" for form in FORMATS]


@pytest.fixture(params=[*FORMATS, *MIRRORS])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> LakeWorld:
    form, _, mirror = request.param.partition("_")
    return LakeWorld(root=tmp_path / "lake", form=form, mirror_mb=512 if mirror else 0)
