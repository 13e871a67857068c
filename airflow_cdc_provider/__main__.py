"""`python -m airflow_cdc_provider check|plan|run|status|verify|... FILE`."""

from __future__ import annotations

import sys

from airflow_cdc_provider.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
