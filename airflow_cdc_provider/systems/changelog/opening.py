"""A change log as a sink, from plain values: opened where it is used."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import airflow_cdc_provider
from airflow_cdc_provider.columns.selection import CapturedTables
from airflow_cdc_provider.columns.sink_port import Owner
from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.systems.changelog.changes import ChangelogChangeSink
from airflow_cdc_provider.systems.changelog.envelope import Origin
from airflow_cdc_provider.systems.changelog.files import Format
from airflow_cdc_provider.systems.changelog.ledger import ChangelogLedger
from airflow_cdc_provider.systems.changelog.splits import ChangelogSplitSink
from airflow_cdc_provider.systems.changelog.targets import ChangelogTables, ChangelogTargets
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates, arrow_schemas

_FILE_URI = "file://"


@dataclass(frozen=True, slots=True)
class ChangelogSink:
    """One pipeline's change log under one generation."""

    path: str
    owner: Owner
    plans: tuple[TablePlan, ...]
    form: Format = Format.JSON
    zero_dates: ZeroDates = ZeroDates.FAIL

    def open_ledger(self) -> ChangelogLedger:
        """Open the ledger."""
        return ChangelogLedger(folder_of(self.path), self.owner)

    def open_targets(self) -> ChangelogTargets:
        """Open what tells whose the folder is."""
        return ChangelogTargets(folder_of(self.path), self.owner)

    def open_tables(self) -> ChangelogTables:
        """Open what tells whether the tables fit."""
        return ChangelogTables()

    def open_splits(self) -> ChangelogSplitSink:
        """Open what publishes splits."""
        return ChangelogSplitSink(
            folder_of(self.path), self.owner, self.plans, form=self.form, origin=self._origin
        )

    def open_changes(self) -> ChangelogChangeSink:
        """Open what appends changes."""
        return ChangelogChangeSink(
            folder_of(self.path),
            self.owner,
            CapturedTables(self.plans, arrow_schemas(self.plans, self.zero_dates)),
            form=self.form,
            origin=self._origin,
        )

    @property
    def _origin(self) -> Origin:
        flavours = {plan.schema.flavour for plan in self.plans}
        connector = "mariadb" if "mariadb" in flavours else "mysql"
        return Origin(connector, str(self.owner.pipeline), airflow_cdc_provider.__version__)


def folder_of(path: str) -> Path:
    """Return the folder that a path or a `file://` address names; other addresses are refused."""
    local = path.removeprefix(_FILE_URI)
    if "://" in local or not local.startswith("/"):
        raise RefusedError(
            f"{path} is no folder of a file system",
            where="sink",
            risk="what cannot create a file only if it is absent cannot keep a change exactly once",
            remedy="use an absolute path on a local file system or on NFS",
        )
    return Path(local)
