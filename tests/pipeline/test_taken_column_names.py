"""A column that the pipeline file leaves out is not copied under the name of another one."""

from __future__ import annotations

import pytest

from airflow_cdc_provider.core.errors import (
    PipelineFileError,
    TableChangedError,
    TablesStoppedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.pipeline.steps.pause_tables import resume_tables
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.pipeline.steps.table_membership import reset_tables
from tests.pipeline.altered_tables import catch_up, change
from tests.pipeline.conftest import Shop
from tests.pipeline.test_shaped_tables import describe

CARDS = "CREATE TABLE cards (id INT PRIMARY KEY, note VARCHAR(20), card VARCHAR(20), pin CHAR(8))"
ROWS = "INSERT INTO cards VALUES (1, 'note 1', 'secret 1', 'pin 1'), (2, NULL, 'secret 2', 'pin 2')"
SHAPE = "columns: {exclude: [card], mask: {pin: {last: 1}}}"
TRADE = "ALTER TABLE cards RENAME COLUMN card TO note, RENAME COLUMN note TO card"


@pytest.fixture(autouse=True)
def cards(shop: Shop) -> None:
    shop.at_source(CARDS)
    shop.at_source(ROWS)
    describe(shop, SHAPE)
    text = shop.path.read_text()
    shop.path.write_text(text.replace(f'"{shop.database}.people":', f'"{shop.database}.cards":'))


def say_in_file(shop: Shop, shape: str) -> None:
    shop.path.write_text(shop.path.read_text().replace(SHAPE, shape))


def secrets_at_sink(shop: Shop) -> list[object]:
    rows = shop.sink_rows("SELECT * FROM cards ORDER BY id")
    return [value for row in rows for value in row if str(value).startswith(("secret", "pin"))]


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        (TRADE, "card, which is left out, is called note now, which is copied"),
        (
            "ALTER TABLE cards DROP COLUMN note, RENAME COLUMN card TO note",
            "card, which is left out, is called note now, which is copied",
        ),
        (
            "ALTER TABLE cards RENAME COLUMN card TO code, ADD COLUMN card INT",
            "card, which is left out, is called code now, which is copied",
        ),
        (
            "ALTER TABLE cards DROP COLUMN card, RENAME COLUMN note TO card",
            "note is called card now, which is left out",
        ),
    ],
)
def test_a_name_that_goes_over_stops_the_table_until_the_file_says_what_it_is(
    shop: Shop, statement: str, why: str
) -> None:
    catch_up(shop)
    change(shop, "cards", [statement, "UPDATE cards SET id = id + 10"])
    with pytest.raises(TablesStoppedError, match=why) as stopped:
        catch_up(shop)
    assert "say in the pipeline file what its columns are to be now" in str(stopped.value)
    assert secrets_at_sink(shop) == []
    with pytest.raises(TablesStoppedError, match=why):
        catch_up(shop)


def test_a_table_that_comes_back_as_it_is_does_not_bring_a_left_out_column(shop: Shop) -> None:
    catch_up(shop)
    change(shop, "cards", [TRADE])
    with pytest.raises(TablesStoppedError, match="left out"):
        catch_up(shop)
    table = TableId(shop.database, "cards")
    resume_tables(shop.run(), [table])
    with pytest.raises(TablesStoppedError, match="left out"):
        catch_up(shop)
    assert secrets_at_sink(shop) == []
    say_in_file(shop, "columns: {exclude: [note], mask: {pin: {last: 1}}}")
    shop.sink.execute("DROP TABLE cards", database=shop.target)
    reset_tables(shop.run(), [table])
    catch_up(shop)
    assert shop.sink_rows("SELECT card, pin FROM cards") == [("note 1", "1"), (None, "2")]


@pytest.mark.parametrize(
    "statement",
    [
        TRADE,
        "ALTER TABLE cards DROP COLUMN note, RENAME COLUMN card TO note",
        "ALTER TABLE cards RENAME COLUMN card TO code",
        "ALTER TABLE cards RENAME COLUMN card TO code, ADD COLUMN card INT",
        "ALTER TABLE cards RENAME COLUMN pin TO note, RENAME COLUMN note TO pin",
    ],
)
def test_a_name_that_goes_over_while_a_table_is_first_read_ends_the_run(
    shop: Shop, statement: str
) -> None:
    plan(shop.run())
    change(shop, "cards", [statement])
    why = "left out or masked|has no column card. Fix"
    with pytest.raises((TableChangedError, PipelineFileError), match=why):
        catch_up(shop)
    assert secrets_at_sink(shop) == []


def test_another_column_may_come_while_a_table_is_first_read(shop: Shop) -> None:
    plan(shop.run())
    change(shop, "cards", ["ALTER TABLE cards ADD COLUMN more INT NOT NULL DEFAULT 7"])
    catch_up(shop)
    assert shop.sink_rows("SELECT * FROM cards ORDER BY id") == [
        (1, "note 1", "1", 7),
        (2, None, "2", 7),
    ]
