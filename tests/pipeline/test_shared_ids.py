"""Server ids of two pipelines of one source: the newcomer gives way, what runs does not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import PreflightError
from airflow_cdc_provider.core.findings import Finding, Level
from airflow_cdc_provider.pipeline.connections import EnvironmentDsns
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.pipeline.run import open_to_look
from airflow_cdc_provider.pipeline.steps.checking import check, require_fit
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.systems.mysql.source.log_transport import LogTransport
from tests.pipeline.conftest import FILE, Shop
from tests.systems.mysql.read_logs import position_of

WRITTEN = "  server_id: 7100-7199\n"


def with_ids(path: Path, ids: str = WRITTEN) -> None:
    text = path.read_text()
    path.write_text(text.replace("sink:\n", f"{ids}sink:\n", 1))


def other_file(shop: Shop, name: str = "other") -> Path:
    path = shop.path.with_name(f"{name}.yaml")
    text = FILE.format(name=f"{name}_p", source=shop.database, sink=f"{shop.target}_{name}")
    path.write_text(text)
    return path


def found(shop: Shop, path: Path, code: str) -> list[Finding]:
    with closing(open_to_look(load_pipeline(path), EnvironmentDsns(shop.environment))) as run:
        return [finding for finding in check(run).findings if finding.code == code]


@contextmanager
def reader(shop: Shop, server_id: int) -> Iterator[None]:
    """Have a reader with this id at the source."""
    endpoint = Endpoint.parse(shop.environment["SHOP_DSN"])
    start = position_of(shop.source)
    with closing(LogTransport(endpoint, server_id=server_id, start=start)):
        yield


def planned(shop: Shop) -> None:
    run = shop.run()
    require_fit(run)
    plan(run)


def test_the_newcomer_is_refused_and_the_pipeline_with_a_plan_is_warned(shop: Shop) -> None:
    with_ids(shop.path)
    planned(shop)
    with_ids(newcomer := other_file(shop))
    os.utime(newcomer, (1, 1))  # its age does not matter: the other one has a plan
    (blocked,) = found(shop, newcomer, "source.server_id_shared")
    assert blocked.level is Level.BLOCK
    assert "shop.yaml" in blocked.observed
    (warned,) = found(shop, shop.path, "source.server_id_shared")
    assert warned.level is Level.WARN


def test_of_two_without_a_plan_the_newer_file_is_refused(shop: Shop) -> None:
    with_ids(shop.path)
    with_ids(newer := other_file(shop))
    os.utime(shop.path, (1, 1))
    (older,) = found(shop, shop.path, "source.server_id_shared")
    (blocked,) = found(shop, newer, "source.server_id_shared")
    assert (older.level, blocked.level) == (Level.WARN, Level.BLOCK)


def test_a_new_file_without_the_key_is_fit_beside_one_that_streams(shop: Shop) -> None:
    with_ids(shop.path, "  server_id: 5400-5499\n")
    planned(shop)
    with reader(shop, 5400):
        new = other_file(shop)
        assert not found(shop, new, "source.server_id_shared")
        assert not found(shop, new, "source.server_id_taken")


def test_a_pipeline_that_streams_by_the_ids_of_before_is_not_refused(shop: Shop) -> None:
    with_ids(shop.path, "  server_id: 5400-5499\n")
    planned(shop)
    text = shop.path.read_text()
    shop.path.write_text(text.replace("  server_id: 5400-5499\n", ""))
    with reader(shop, 5400):
        require_fit(shop.run())


def test_ids_that_a_reader_of_the_source_has_refuse_a_pipeline_without_a_plan(shop: Shop) -> None:
    with_ids(shop.path)
    with reader(shop, 7100):
        (blocked,) = found(shop, shop.path, "source.server_id_taken")
        assert blocked.level is Level.BLOCK
        assert "7100 (airflow-cdc)" in blocked.observed
        with pytest.raises(PreflightError):
            require_fit(shop.run())


def test_ids_that_a_reader_has_are_a_warning_of_a_pipeline_that_has_rows(shop: Shop) -> None:
    with_ids(shop.path)
    planned(shop)
    with reader(shop, 7100):
        (warned,) = found(shop, shop.path, "source.server_id_taken")
        assert warned.level is Level.WARN
