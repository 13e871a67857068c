"""The oracle: source and sink read whole and compared row by row, by none of the product's code."""

from __future__ import annotations

from tests.servers.given import SqlServer


def rows_of(server: SqlServer, table: str) -> dict[str, int]:
    """Return every row of `database.table` as the server prints it in hexadecimal, counted."""
    database, name = table.split(".")
    columns = server.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = %s "
        "AND table_name = %s AND IFNULL(generation_expression, '') = '' ORDER BY ordinal_position",
        (database, name),
    )
    # HEX of a number would round it, so everything is text first.
    values = ", ".join(f"IFNULL(HEX(CONCAT(`{column[0]}`)), 'NULL')" for column in columns)
    counted: dict[str, int] = {}
    for (row,) in server.execute(f"SELECT CONCAT_WS(',', {values}) FROM `{database}`.`{name}`"):
        text = row if isinstance(row, str) else row.decode()
        counted[text] = counted.get(text, 0) + 1
    return counted


def differences(
    source: SqlServer, sink: SqlServer, tables: dict[str, str], *, shown: int = 3
) -> list[str]:
    """Compare each source table with its sink table; returns what differs, empty if nothing."""
    found = []
    for table, copy in tables.items():
        mine, theirs = rows_of(source, table), rows_of(sink, copy)
        missing = [row for row in mine if mine[row] != theirs.get(row, 0)]
        extra = [row for row in theirs if theirs[row] != mine.get(row, 0)]
        if missing or extra:
            found.append(
                f"{table}: {len(missing)} rows are not in {copy}, {len(extra)} are only there; "
                f"such as {missing[:shown]} and {extra[:shown]}"
            )
    return found
