"""What Airflow's provider discovery reads; an error here would break every airflow command.

A literal, compared with the package by `tests/packaging`: nothing is computed or imported.
"""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Return the provider's description in the shape of Airflow's provider_info schema."""
    return {
        "package-name": "airflow-provider-cdc",
        "name": "CDC",
        "description": (
            "Copy MySQL and MariaDB tables elsewhere and keep them in step: parallel, lock-free "
            "snapshots and one binlog stream, on Spark."
        ),
    }
