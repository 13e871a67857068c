"""How OpenLineage names tables in a lake."""

from __future__ import annotations

from airflow_cdc_provider.systems.file_log.naming import dataset, namespace, type_text

__all__ = ["dataset", "namespace", "type_text"]
