"""The command line: `python -m airflow_cdc_provider` without a scheduler, and `airflow cdc`."""
