"""The types that a check takes for known are those that have a place in Arrow."""

from __future__ import annotations

import pytest

from airflow_cdc_provider.core.errors import UnknownTypeError
from airflow_cdc_provider.core.table_schema import ColumnType
from airflow_cdc_provider.systems.mysql.dialect.column_types import (
    KNOWN_TYPES,
    mysql_type,
    require_known,
)
from airflow_cdc_provider.systems.mysql.dialect.value_model import arrow_type


@pytest.mark.parametrize("name", sorted(KNOWN_TYPES))
def test_every_known_type_has_an_arrow_type(name: str) -> None:
    kind = mysql_type(name)
    require_known(kind)
    assert arrow_type(kind) is not None


@pytest.mark.parametrize("ask", [require_known, arrow_type])
@pytest.mark.parametrize(
    "kind", [mysql_type("row"), mysql_type("set", members=("a", ""))], ids=["unknown", "empty set"]
)
def test_what_is_not_known_has_none(ask: object, kind: ColumnType) -> None:
    assert callable(ask)
    with pytest.raises(UnknownTypeError):
        ask(kind)
