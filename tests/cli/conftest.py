"""The command line in this process, against real servers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_cdc_provider.cli.main import main
from tests.pipeline.conftest import Shop, shop
from tests.said import Said

__all__ = ["shop"]


Say = Callable[..., Said]


@pytest.fixture
def say(shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """Run a command on the shop's file, with its DSNs in the environment."""
    for name, dsn in shop.environment.items():
        monkeypatch.setenv(name, dsn)

    def run(command: str, *options: str) -> Said:
        capsys.readouterr()
        code = main([command, str(shop.path), *options])
        out, err = capsys.readouterr()
        return Said(int(code), out, err)

    return run
