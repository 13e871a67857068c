"""spark-submit puts the folder of `main.py` on the path: nothing in it may hide another module."""

from __future__ import annotations

import sys
from pathlib import Path

import airflow_cdc_provider.spark


def test_no_module_of_the_room_hides_one_of_the_standard_library() -> None:
    folder = Path(airflow_cdc_provider.spark.__file__).parent
    names = {file.stem for file in folder.glob("*.py")}
    assert "main" in names
    assert names & sys.stdlib_module_names == set()
