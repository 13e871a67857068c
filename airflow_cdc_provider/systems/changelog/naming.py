"""How OpenLineage names the files of a change log."""

from __future__ import annotations

from airflow_cdc_provider.systems.file_log.naming import dataset, namespace, type_text

__all__ = ["dataset", "namespace", "type_text"]
