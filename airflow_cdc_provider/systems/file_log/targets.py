"""Whose a change log's folder is, and which tables it takes.

A folder is one pipeline's. A table's folder in it may hold files only if the pipeline owns the
table: others' files, and those of a log that was dropped, are refused until they may be replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.core.identifiers import TableId, table_option
from airflow_cdc_provider.core.keys import comparable
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.schema_changes import SchemaChange
from airflow_cdc_provider.core.stopped_tables import StoppedTable
from airflow_cdc_provider.core.table_drift import TableDrift
from airflow_cdc_provider.core.table_schema import ColumnType, TypeKind
from airflow_cdc_provider.engine.sink.port import Copied, Owner, TargetConflict
from airflow_cdc_provider.systems.file_log.layout import table_folder
from airflow_cdc_provider.systems.file_log.ledger import not_exact
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.file_log.published import Record, Targets, targets_to
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.files.opening import Root, files_at

_ALIKE = frozenset({TypeKind.INTEGER, TypeKind.TEXT, TypeKind.DECIMAL, TypeKind.ENUM, TypeKind.SET})
"""Kinds whose values are written alike, however long or wide the type is."""


class LogTargets:
    """The claims of one pipeline on the tables of its change log."""

    def __init__(self, root: Root, owner: Owner) -> None:
        self._manifest = Manifest(root, str(owner.pipeline))
        self._root, self._owner = files_at(root), owner

    def close(self) -> None:
        """Do nothing: a folder needs no connection."""

    def plan_id(self) -> str:
        """Return the id of the plan whose splits are in the change log, empty for none."""
        return self._manifest.read().plan_id

    def changing(self) -> frozenset[TableId]:
        """Return the source's tables that have a schema change begun and not finished."""
        return frozenset(change.table for change in self._manifest.read().begun)

    def stopped(self) -> tuple[StoppedTable, ...]:
        """Return the tables that are isolated from the stream."""
        return self._manifest.read().stopped

    def sharers(self, plans: Sequence[TablePlan]) -> tuple[str, ...]:  # noqa: ARG002 - of the port
        """Return none: a change log is one pipeline's."""
        return ()

    def routes(self) -> tuple[tuple[TableId, TableId], ...]:
        """Return source and sink table of each of the pipeline's claims."""
        targets = self._manifest.read().targets
        return tuple(sorted((each, sink) for sink, sources in targets.items() for each in sources))

    def conflicts(
        self, plans: Sequence[TablePlan], *, known: Collection[Copied] = ()
    ) -> tuple[TargetConflict, ...]:
        """Return why the plans' tables may not be written to: another owner, or unknown files."""
        state = self._manifest.read_any()
        if state.pipeline not in ("", str(self._owner.pipeline)):
            return tuple(_taken(plan, state) for plan in plans)
        filled = {sink for _, sink in known}
        # files of a table that has left the pipeline are the log's: it begins again behind them
        ours = set(state.folders) if state.targets else set()
        foreign = [
            plan
            for plan in plans
            if plan.sink_table not in filled
            and plan.sink_table not in state.targets
            and table_folder(plan.sink_table) not in ours
            and self._holds_files(plan)
        ]
        return tuple(_filled(plan) for plan in foreign)

    def claim(
        self,
        plans: Sequence[TablePlan],
        *,
        known: Collection[Copied] = (),
        replace_rows: bool = False,
    ) -> tuple[TableId, ...]:
        """Claim the plans' tables, all or none; return those taken with unknown files."""
        found = self.conflicts(plans, known=known)
        refused = [each for each in found if each.pipeline or not replace_rows]
        if refused:
            raise RefusedError(
                "; ".join(conflict.text for conflict in refused),
                where=str(self._root),
                risk="the log would be mixed with what is there; nothing was changed",
                remedy="; ".join(dict.fromkeys(conflict.remedy for conflict in refused)),
            )
        self._store(partial(_with, plans))
        return tuple(conflict.table for conflict in found)

    def rows(self, table: TableId) -> int | None:  # noqa: ARG002 - the port's
        """Return None: a change log holds changes, not rows."""
        return None

    def drop(self, tables: Collection[TableId]) -> None:
        """Refuse: a change log's files are never deleted here."""
        raise RefusedError(
            f"the files of {', '.join(map(str, tables))} are a log, and are not dropped",
            where=str(self._root),
            risk=NOTHING_CHANGED,
            remedy="delete them by hand if nobody reads them",
        )

    def release(self, *, keep: Sequence[TablePlan] = ()) -> None:
        """Delete the pipeline's claims on all tables except those of `keep`; their files stay."""
        self._store(partial(_of_those, keep))

    def _store(self, change: Callable[[Targets], Targets]) -> None:
        """Commit changed claims on tables."""

        def judge(state: LogState) -> Record | None:
            self._manifest.require_owner(state, self._owner.generation)
            targets = change(state.targets)
            if targets == state.targets:
                return None
            return {"do": "claim", "targets": targets_to(targets)}

        self._manifest.commit(self._owner.generation, judge)

    def _holds_files(self, plan: TablePlan) -> bool:
        """Tell whether a table's folder holds files."""
        return self._root.holds_any(table_folder(plan.sink_table))


class LogTables:
    """The table builder of a log of files, which needs none: a folder comes with its first file."""

    def __init__(self, root: Root, owner: Owner, *, is_exact: bool = True) -> None:
        self._manifest = Manifest(root, str(owner.pipeline))
        self._is_exact = is_exact

    def close(self) -> None:
        """Do nothing."""

    def require_fit(self, plans: Sequence[TablePlan]) -> None:
        """Refuse tables whose changes cannot be told from their snapshot's rows (law 6)."""
        for plan in plans:
            table_folder(plan.sink_table)
            kinds = plan.schema.key_kinds
            if self._is_exact and kinds and not comparable(kinds):
                raise not_exact(str(plan.schema.table))

    def require_creatable(self, plans: Sequence[TablePlan]) -> None:
        """Refuse tables that a change log cannot hold."""
        self.require_fit(plans)

    def missing(self, plans: Sequence[TablePlan]) -> tuple[TableId, ...]:  # noqa: ARG002
        """Return nothing: a table's folder is made with its first file."""
        return ()

    def create_missing(self, plans: Sequence[TablePlan]) -> dict[TableId, bool]:
        """Return that no table was created, after refusing tables that a change log cannot hold."""
        self.require_fit(plans)
        return {plan.sink_table: False for plan in plans}

    def drifted(self, plans: Sequence[TablePlan]) -> tuple[TableDrift, ...]:  # noqa: ARG002
        """Return nothing: files have no definition that could be altered."""
        return ()

    def columns(self, plan: TablePlan) -> frozenset[str]:
        """Return the names of the planned columns, and of those that rows of before have."""
        planned = {column.name.lower() for column in plan.target.copied_columns}
        return frozenset(planned | self._manifest.read().former.get(plan.schema.table, set()))

    def rewritten(self, change_of: Mapping[str, tuple[ColumnType, ColumnType]]) -> str:
        """Return which columns' values of before are not what the new type has, and why."""
        names = [name for name, (old, new) in change_of.items() if not _reads_alike(old, new)]
        return f"events of before have {', '.join(names)} as its old type" if names else ""

    def change(self, change: SchemaChange) -> None:
        """Alter nothing: files of before stay as they are, and those behind it have new columns.

        A table whose key cannot be compared any more is refused.
        """
        self.require_fit([change.after])
        if change.truncates and not change.rereads:  # a log's event of it is written elsewhere
            raise RefusedError(
                f"{change.table} was truncated before it was in step with its source",
                where=f"table {change.table}",
                risk="the log would not tell of it; nothing was written",
                remedy=f"`reset` it with {table_option(change.table)}: only that is read again",
            ).about(change.table)

    def finish(self, plans: Sequence[TablePlan]) -> tuple[str, ...]:  # noqa: ARG002 - the port's
        """Return no remarks: a change log has no keys to add."""
        return ()


def _with(plans: Sequence[TablePlan], targets: Targets) -> Targets:
    """Return claims with those of plans; a shard's is beside those of the others."""
    found = dict(targets)
    for plan in plans:
        source, known = plan.schema.table, found.get(plan.sink_table, ())
        others = [each for each in known if each != source] if plan.shard is not None else []
        found[plan.sink_table] = tuple(sorted([*others, source]))
    return found


def _of_those(kept: Sequence[TablePlan], targets: Targets) -> Targets:
    """Return the claims on tables of the sink that plans go to, and by these alone.

    Where none of them is its source yet, a claim stays as it is.
    """
    wanted: dict[TableId, set[TableId]] = {}
    for plan in kept:
        wanted.setdefault(plan.sink_table, set()).add(plan.schema.table)
    return {
        sink: tuple(each for each in sources if each in wanted[sink]) or sources
        for sink, sources in targets.items()
        if sink in wanted
    }


def _reads_alike(old: ColumnType, new: ColumnType) -> bool:
    """Tell whether a value that was written of the old type is what the new one has of it."""
    if old.kind is not new.kind or old.fraction != new.fraction or old.scale != new.scale:
        return False
    if old.kind is TypeKind.ENUM and _none_of(old) != _none_of(new):
        return False  # what is none of the members is written as another text
    if old.kind is TypeKind.BINARY:
        return "binary" not in {old.name, new.name}  # it is padded to its length
    return old.kind in _ALIKE or replace(old, collation=None) == replace(new, collation=None)


def _none_of(kind: ColumnType) -> str:
    """Return the text that is written for an ENUM's value that is none of its members."""
    return kind.no_member if "" in kind.members else ""


def _taken(plan: TablePlan, state: LogState) -> TargetConflict:
    """Return the conflict of a folder that belongs to another pipeline."""
    return TargetConflict(
        table=plan.sink_table,
        pipeline=state.pipeline,
        text=f"the folder belongs to the pipeline {state.pipeline}",
        remedy="give this pipeline a folder of its own as the sink's path",
    )


def _filled(plan: TablePlan) -> TargetConflict:
    """Return the conflict of a table's folder with unknown files."""
    return TargetConflict(
        table=plan.sink_table,
        pipeline="",
        text=f"the folder of {plan.sink_table} holds files that this pipeline does not know",
        remedy="empty the folder, or give the pipeline another one",
    )
