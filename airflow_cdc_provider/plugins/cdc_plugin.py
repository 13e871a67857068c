"""The plugin that Airflow loads by entry point, in every one of its processes: it stays light."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from airflow.plugins_manager import AirflowPlugin

from airflow_cdc_provider.links.page import CdcPageLink
from airflow_cdc_provider.links.progress import CdcProgressLink

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class LatePage:
    """The page's app, built when it is first asked for.

    It loads SQLAlchemy and the API server's own modules, which take seconds and which schedulers,
    workers and triggerers have no use for.
    """

    def __init__(self) -> None:
        self._app: ASGIApp | None = None
        self._lock = threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._built()(scope, receive, send)

    def _built(self) -> ASGIApp:
        with self._lock:
            if self._app is None:
                from airflow_cdc_provider.web.app import create_app  # noqa: PLC0415 - see above

                self._app = create_app()
            return self._app


class CdcPlugin(AirflowPlugin):
    """Adds the CDC page to the navigation, and the links from tasks."""

    name = "cdc"
    operator_extra_links = [CdcProgressLink(), CdcPageLink()]  # noqa: RUF012 - Airflow's own form
    fastapi_apps = [  # noqa: RUF012
        {"app": LatePage(), "url_prefix": "/cdc", "name": "CDC"}
    ]
    external_views = [  # noqa: RUF012
        {
            "name": "CDC",
            "href": "cdc/page",
            "url_route": "cdc",
            "destination": "nav",
            "nav_top_level": True,
            "icon": "cdc/static/icon.svg",
            "icon_dark_mode": "cdc/static/icon-dark.svg",
        }
    ]
