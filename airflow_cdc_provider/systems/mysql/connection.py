"""What the extra of an Airflow connection says of a MySQL or MariaDB server.

A setting that changes how the server is reached is translated or refused, never dropped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow_cdc_provider.core.wrong_value import WrongValueError

FORM_FIELDS = ("ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_identity", "ssl_disabled")
"""The fields that our own types of connections have in their form, beside Airflow's."""
# What other drivers take from the same connection; none of it changes who answers, or how safely.
_OF_OTHER_DRIVERS = frozenset({"charset", "cursor", "local_infile", "client", "autocommit"})
_TLS_FILES = {"ca": "ssl_ca", "cert": "ssl_cert", "key": "ssl_key"}


def dsn_options(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a DSN that mean what a connection's extra means."""
    left_out = _OF_OTHER_DRIVERS | {"ssl", "ssl_mode"}
    options = {
        name: value
        for name, value in extra.items()
        if name not in left_out and value not in (None, "")
    }
    return options | _tls_files(extra.get("ssl")) | _tls_mode(str(extra.get("ssl_mode") or ""))


def _tls_mode(mode: str) -> dict[str, Any]:
    """Translate the `ssl_mode` of MySQL's own clients."""
    match mode.upper():
        case "" | "VERIFY_IDENTITY":
            return {}
        case "VERIFY_CA":
            return {"ssl_verify_identity": False}
        case "DISABLED":
            return {"ssl_disabled": True}
        case unknown:
            raise WrongValueError(
                f"ssl_mode {unknown} does not say whether the server is verified",
                "write VERIFY_IDENTITY, VERIFY_CA or DISABLED",
            )


def _tls_files(ssl: Any) -> dict[str, Any]:
    """Translate the `ssl` that Airflow's MySQL provider knows: `{"ca": ..., "cert": ...}`."""
    if not ssl:
        return {}
    try:
        files = json.loads(ssl) if isinstance(ssl, str) else ssl
        return {_TLS_FILES[name]: value for name, value in files.items()}
    except (ValueError, AttributeError, KeyError):
        raise WrongValueError(
            "the extra 'ssl' is not understood",
            'write it as {"ca": "/path", "cert": "/path", "key": "/path"}',
        ) from None
