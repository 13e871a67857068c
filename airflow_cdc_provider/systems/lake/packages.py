"""The library of each format: an extra brings it, and the driver needs it."""

from __future__ import annotations

from importlib.util import find_spec

from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError

PACKAGES = {"iceberg": "pyiceberg", "delta": "deltalake"}


def is_there(form: str) -> bool:
    """Tell whether the library of a format is installed here."""
    return find_spec(PACKAGES[form]) is not None


def require_package(form: str) -> None:
    """Refuse if the library of a format is not installed here."""
    if not is_there(form):
        raise RefusedError(
            f"the package {PACKAGES[form]} is not installed, and nothing else commits to tables of "
            f"{form}",
            where="sink",
            risk=NOTHING_STARTED,
            remedy=how_to_install(form),
        )


def require_glue() -> None:
    """Refuse if the library that speaks to Glue is not installed here."""
    if find_spec("boto3") is None:
        raise RefusedError(
            "the package boto3 is not installed, and nothing else asks Glue",
            where="sink.catalog",
            risk=NOTHING_STARTED,
            remedy=how_to_install("glue"),
        )


def how_to_install(form: str) -> str:
    """Return the command that installs the library of a format or catalog."""
    return f"pip install 'airflow-provider-cdc[{form}]', here and where the stream's driver runs"
