"""What the formats' libraries say of an error, as users read it."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import OperationalError

from airflow_cdc_provider.systems.lake.held import said_by

STATEMENT = "CREATE TABLE iceberg_tables (\n\tname VARCHAR(255)[] NOT NULL\n)\n\n"


@pytest.mark.parametrize("parameters", [(), ("a [SQL: b]", 1)])
def test_a_catalogs_error_is_printed_without_its_statement(parameters: tuple[object, ...]) -> None:
    error = OperationalError(STATEMENT, parameters, Exception("database or disk is full"))
    assert "[SQL: " in str(error)
    said = "OperationalError: (builtins.Exception) database or disk is full"
    assert said_by(error) == said
    assert said_by(RuntimeError(f"no commit: {error}")) == f"RuntimeError: no commit: {said[18:]}"
    assert said_by(RuntimeError(" ".join(str(error).split()))) == f"RuntimeError: {said[18:]}"


def test_what_else_is_in_brackets_is_printed() -> None:
    assert said_by(ValueError("column [SQL] is not there")) == (
        "ValueError: column [SQL] is not there"
    )
