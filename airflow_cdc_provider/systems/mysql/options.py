"""What a pipeline says of a MySQL source alone, as jobs carry it to where the source is opened."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_cdc_provider.core.jobspec import SourceOptions
from airflow_cdc_provider.core.named_keys import NO_NAMED_KEYS, NamedKeys
from airflow_cdc_provider.systems.mysql.dialect.column_types import ZeroDates


@dataclass(frozen=True, slots=True)
class MySqlOptions:
    """The server ids of a pipeline's readers, its policy for zero dates, and keys that it names."""

    server_ids: range = range(5400, 5500)
    """Each reader of the log connects as a replica with one of these."""
    zero_dates: ZeroDates = ZeroDates.FAIL
    keys: NamedKeys = NO_NAMED_KEYS
    """The unique keys by which rows of tables without a primary key are told apart."""

    @classmethod
    def of(cls, options: SourceOptions) -> MySqlOptions:
        """Read the options of a job; those that it leaves out have their defaults."""
        first, last = options.get("server_ids", (5400, 5499))
        return cls(
            range(first, last + 1),
            ZeroDates(options.get("zero_dates", ZeroDates.FAIL)),
            NamedKeys.from_json(options.get("keys", ())),
        )

    def server_id(self, reader: int) -> int:
        """Return the server id of a reader by its number."""
        return self.server_ids[reader]
