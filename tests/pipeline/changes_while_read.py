"""What several tests need of `test_changes_while_read`."""

from __future__ import annotations

from collections.abc import Sequence

from tests.pipeline.conftest import Shop


def make(shop: Shop, names: Sequence[str]) -> None:
    """Make tables of nine rows, and let the file pick them alone."""
    rows = ", ".join(f"({number}, 'note {number}', {number})" for number in range(1, 10))
    for name in names:
        shop.at_source(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, note VARCHAR(40), flag INT NOT NULL)"
        )
        shop.at_source(f"INSERT INTO {name} VALUES {rows}")
    tables = ", ".join(f'"{shop.database}.{name}"' for name in names)
    shop.path.write_text(shop.path.read_text().replace(f'"{shop.database}.*"]', f"{tables}]", 1))
