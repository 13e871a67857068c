"""What Airflow's provider discovery reads; an error here would break every airflow command.

A literal, compared with the package by `tests/packaging`: nothing is computed or imported.
"""

from __future__ import annotations

from typing import Any

_TLS_FIELDS = {
    "ssl_ca": {
        "label": "TLS authorities",
        "description": "File of the authorities that the server's certificate is verified with; "
        "the system's if empty.",
        "schema": {"type": ["string", "null"]},
    },
    "ssl_cert": {
        "label": "TLS certificate",
        "description": "File of our own certificate.",
        "schema": {"type": ["string", "null"]},
    },
    "ssl_key": {
        "label": "TLS key",
        "description": "File of our own certificate's key.",
        "schema": {"type": ["string", "null"]},
    },
    "ssl_verify_identity": {
        "label": "Verify the server's name",
        "description": "Off: any server with a certificate of the authorities.",
        "schema": {"type": ["boolean", "null"], "default": True},
    },
    "ssl_disabled": {
        "label": "Without TLS",
        "description": "Passwords and rows travel readable.",
        "schema": {"type": ["boolean", "null"], "default": False},
    },
}


def get_provider_info() -> dict[str, Any]:
    """Return the provider's description in the shape of Airflow's provider_info schema."""
    return {
        "package-name": "airflow-provider-cdc",
        "name": "CDC",
        "description": (
            "Copy MySQL and MariaDB tables elsewhere and keep them in step: parallel, lock-free "
            "snapshots and one binlog stream, on Spark."
        ),
        "integrations": [
            {
                "integration-name": "CDC",
                "external-doc-url": "https://dev.mysql.com/doc/refman/en/binary-log.html",
                "tags": ["software"],
            }
        ],
        "operators": [
            {
                "integration-name": "CDC",
                "python-modules": [
                    "airflow_cdc_provider.operators.backfill",
                    "airflow_cdc_provider.operators.backfill_dag",
                    "airflow_cdc_provider.operators.changes_dag",
                    "airflow_cdc_provider.operators.compare",
                    "airflow_cdc_provider.operators.control",
                    "airflow_cdc_provider.operators.dags",
                    "airflow_cdc_provider.operators.health",
                    "airflow_cdc_provider.operators.jobs",
                    "airflow_cdc_provider.operators.requests",
                    "airflow_cdc_provider.operators.resync_dag",
                    "airflow_cdc_provider.operators.resync_steps",
                    "airflow_cdc_provider.operators.seed_dag",
                    "airflow_cdc_provider.operators.seeding",
                    "airflow_cdc_provider.operators.steps",
                    "airflow_cdc_provider.operators.verify",
                    "airflow_cdc_provider.operators.verify_dag",
                ],
            }
        ],
        "sensors": [
            {
                "integration-name": "CDC",
                "python-modules": [
                    "airflow_cdc_provider.sensors.changes",
                    "airflow_cdc_provider.sensors.requests",
                    "airflow_cdc_provider.sensors.stream",
                ],
            }
        ],
        "hooks": [
            {"integration-name": "CDC", "python-modules": ["airflow_cdc_provider.hooks.cdc"]}
        ],
        "triggers": [
            {
                "integration-name": "CDC",
                "python-modules": [
                    "airflow_cdc_provider.triggers.changes",
                    "airflow_cdc_provider.triggers.requests",
                    "airflow_cdc_provider.triggers.stream",
                ],
            }
        ],
        "connection-types": [
            {
                "connection-type": "cdc_mysql",
                "hook-class-name": "airflow_cdc_provider.hooks.cdc.CdcHook",
                "hook-name": "CDC source (MySQL, MariaDB)",
                "ui-field-behaviour": {
                    "hidden-fields": [],
                    "relabeling": {
                        "schema": "Database (only tested for its rights; may be empty)",
                        "login": "User",
                    },
                    "placeholders": {"host": "db1.example", "port": "3306"},
                },
                "conn-fields": _TLS_FIELDS,
            },
            {
                "connection-type": "cdc_mysql_sink",
                "hook-class-name": "airflow_cdc_provider.hooks.cdc.CdcSinkHook",
                "hook-name": "CDC sink (MySQL, MariaDB)",
                "ui-field-behaviour": {
                    "hidden-fields": [],
                    "relabeling": {
                        "schema": "Database (only tested for its rights; may be empty)",
                        "login": "User",
                    },
                    "placeholders": {"host": "db2.example", "port": "3306"},
                },
                "conn-fields": _TLS_FIELDS,
            },
            {
                "connection-type": "cdc_state",
                "hook-class-name": "airflow_cdc_provider.hooks.cdc.CdcStateHook",
                "hook-name": "CDC state store (MySQL, PostgreSQL, SQLite)",
                "ui-field-behaviour": {
                    "hidden-fields": [],
                    "relabeling": {
                        "host": "Host, or the file's path (SQLite)",
                        "schema": "Database",
                        "login": "User",
                    },
                    "placeholders": {"schema": "cdc_state"},
                },
                "conn-fields": {
                    "kind": {
                        "label": "Kind of database",
                        "description": "Never Airflow's own metadata database; mysql is MariaDB "
                        "too, sqlite is for one machine.",
                        "schema": {
                            "type": "string",
                            "enum": ["mysql", "postgresql", "sqlite"],
                            "default": "mysql",
                        },
                    },
                    **_TLS_FIELDS,
                },
            },
        ],
        "asset-uris": [{"schemes": ["cdc"], "handler": None}],
        "notifications": ["airflow_cdc_provider.notifications.status.CdcStatusNotifier"],
        "extra-links": [
            "airflow_cdc_provider.links.page.CdcPageLink",
            "airflow_cdc_provider.links.progress.CdcProgressLink",
            "airflow_cdc_provider.links.spark.CdcSparkLink",
        ],
        "cli": ["airflow_cdc_provider.cli.airflow_commands.get_cdc_commands"],
        "config": {
            "cdc": {
                "description": "Change data capture.",
                "options": {
                    "job_log_folder": {
                        "description": "Folder of the logs of Spark jobs, one below it for each "
                        "pipeline; in the user's own state directory if empty.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "/var/log/airflow-cdc",
                        "default": "",
                    },
                    "spark_history_url": {
                        "description": "Address of Spark's history server; tasks link to their "
                        "application there, and else to its own UI while it runs.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "http://history:18080",
                        "default": "",
                    },
                },
            }
        },
    }
