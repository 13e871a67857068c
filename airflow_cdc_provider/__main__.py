"""`python -m airflow_cdc_provider check|plan|run|status|verify|... FILE`."""

from __future__ import annotations

import sys

from airflow_cdc_provider.core.many_records import collect_seldom

if __name__ == "__main__":
    collect_seldom()
    from airflow_cdc_provider.cli.main import main

    sys.exit(main())
