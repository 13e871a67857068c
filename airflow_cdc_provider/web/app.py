"""The page as an app that Airflow's API server mounts: files, and answers of JSON.

It is built at the first request, as `plugins.cdc_plugin` says.
"""

from __future__ import annotations

from fastapi import FastAPI, HTTPException, Request, status
from fastapi.responses import FileResponse, JSONResponse, Response

from airflow_cdc_provider.core.errors import (
    CdcError,
    FencedError,
    RetryableError,
    StateMovedError,
)
from airflow_cdc_provider.web.files import PAGE, static_files
from airflow_cdc_provider.web.guards import SEES_PLUGINS
from airflow_cdc_provider.web.headers import SafeHeaders
from airflow_cdc_provider.web.routes import routes


def create_app() -> FastAPI:
    """Build the page's app; each of its routes checks the user's permissions."""
    app = FastAPI(
        title="CDC",
        dependencies=[SEES_PLUGINS],
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.add_middleware(SafeHeaders)
    app.add_exception_handler(CdcError, _explained)
    files = static_files()

    # no slash at its end, which the router of Airflow's UI may drop
    @app.get("/page")
    def page() -> Response:
        return FileResponse(PAGE, media_type="text/html")

    @app.get("/static/{name:path}")
    def static(name: str) -> Response:
        if name not in files:
            raise HTTPException(status.HTTP_404_NOT_FOUND, "no such file")
        # asked for again each time, and not sent again where it is the same
        return FileResponse(files[name], headers={"cache-control": "no-cache"})

    app.include_router(routes(), prefix="/api")
    return app


def _explained(_request: Request, error: Exception) -> Response:
    """Answer a request with an error's facts as JSON, and a fitting status code."""
    if not isinstance(error, CdcError):
        raise error
    if isinstance(error, RetryableError):
        code = status.HTTP_503_SERVICE_UNAVAILABLE
    elif isinstance(error, FencedError | StateMovedError):
        code = status.HTTP_409_CONFLICT
    else:
        code = status.HTTP_400_BAD_REQUEST
    return JSONResponse({"error": error.to_json()}, code)
