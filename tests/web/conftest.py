"""An API server's app in this process, with DAGs of pipelines whose state is made by hand."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.state.store import SqlStateStore, open_store
from tests.airflow.conftest import airflow_db  # noqa: F401 - a fixture
from tests.web.new_pipelines import choices  # noqa: F401 - a fixture
from tests.web.serving import browser, lively, served, tab  # noqa: F401 - fixtures
from tests.web.shop import ROLES, SHOP, Page, pipeline_dags


@pytest.fixture(scope="session")
def web_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("web")


@pytest.fixture(scope="session")
def state_dsn(web_folder: Path) -> Iterator[str]:
    dsn = f"sqlite:///{web_folder}/state.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_WEB_STATE", dsn)
        yield dsn


@pytest.fixture(scope="session")
def page(
    airflow_db: None,  # noqa: F811
    web_folder: Path,
    state_dsn: str,
) -> Iterator[Page]:
    """The API server's app with the page mounted, and a token for each role."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # starlette would rather have the next httpx
        from airflow.api_fastapi.app import create_app, get_auth_manager  # noqa: PLC0415
        from airflow.api_fastapi.auth.managers.simple.user import (  # noqa: PLC0415
            SimpleAuthManagerUser,
        )
        from fastapi.testclient import TestClient  # noqa: PLC0415

    open_store(state_dsn).close()
    folder = web_folder / "pipelines"
    folder.mkdir()
    pipeline_dags(folder, [str(SHOP)])
    with TestClient(create_app(apps="core"), base_url="http://testserver") as client:
        manager = get_auth_manager()
        tokens = {
            role: manager.generate_jwt(SimpleAuthManagerUser(username=role.lower(), role=role))
            for role in ROLES
        }
        yield Page(client, {**tokens, "GARBAGE": "not.a.token"})


@pytest.fixture
def store(page: Page, state_dsn: str) -> Iterator[SqlStateStore]:
    """The state store, without the pipeline."""
    opened = open_store(state_dsn)
    generation = opened.take_over(SHOP, "the test").generation
    opened.forget(SHOP, generation)
    opened.want(SHOP, Wanted.RUN)
    yield opened
    opened.close()
