"""What to do where a log cannot be read."""

from __future__ import annotations

from airflow_cdc_provider.core.errors import SEE_LOG

CHECK_LOG = f"{SEE_LOG}, and check the file with mysqlbinlog"
