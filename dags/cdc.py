"""One DAG for each file in pipelines/: copy this file, and write your own pipelines beside it."""

from airflow_cdc_provider.operators.dags import cdc_dags

cdc_dags("pipelines/", globals())
