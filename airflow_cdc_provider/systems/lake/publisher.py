"""Tables follow the log: what its manifests name, and a table does not have yet, is added to it.

The log is the truth, and it only grows while a plan lasts. A table says in its own commits how many
of the log's files of changes it has (`tables.table`). So one step is always the same, whoever makes
it and however often: load the table, look how far it is, add what is behind in one compare-and-swap
on what was loaded. If somebody else was first, look again.

A table of an older plan is exchanged whole, in one commit, by the rows of the new one. An old owner
that comes late finds a newer generation in the table and stops.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_cdc_provider.core.errors import (
    IntegrityError,
    RefusedError,
    SinkBusyError,
    SinkUnreachableError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.engine.ledger.decisions import fenced
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.file_log.layout import (
    TRANSACTION,
    generation_of,
    table_folder,
    table_of_folder,
)
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.file_log.published import Record
from airflow_cdc_provider.systems.file_log.state import LogState
from airflow_cdc_provider.systems.files.object_store import ObjectStore
from airflow_cdc_provider.systems.lake.behind import Behind, begun_anew, behind
from airflow_cdc_provider.systems.lake.compacting import compacted
from airflow_cdc_provider.systems.lake.current_views import CurrentViews
from airflow_cdc_provider.systems.lake.held import (
    OpenTables,
    libraries_explained,
    own_stamp,
    said_by,
)
from airflow_cdc_provider.systems.lake.left_behind import LeftBehind
from airflow_cdc_provider.systems.lake.next_commit import Commits, NextCommit
from airflow_cdc_provider.systems.lake.partitions import UnfitLayoutError
from airflow_cdc_provider.systems.lake.tables.bounds import without_value
from airflow_cdc_provider.systems.lake.tables.table import (
    ClosedTableError,
    LakeTables,
    LoadedTable,
    NewTable,
    Stamp,
    TableMovedError,
)

log = logging.getLogger(__name__)

_TRIES = 20
_NEVER_MADE = TableMovedError, UnfitLayoutError, ClosedTableError, RefusedError


class Publisher:
    """Brings the tables of one pipeline's lake to the end of its log."""

    def __init__(
        self,
        store: ObjectStore,
        owner: Owner,
        open_tables: OpenTables,
        commits: Commits,
        *,
        widens: bool,
        views: CurrentViews | None = None,
    ) -> None:
        """`widens`: a column's type can become one that holds more values."""
        self._store, self._owner, self._open_tables = store, owner, open_tables
        self._commits, self._widens = commits, widens
        self._views, self._unchanged = views, dict[TableId, pa.Schema]()
        self._unused: list[str] = []
        self._manifest = Manifest(store, str(owner.pipeline))

    def publish(self) -> None:
        """Bring the tables that the stream owns to the end of the log.

        One that cannot follow holds no other up: an error about all such tables is raised behind.
        """
        state = self._latest()
        if state.stream is None:
            return
        self._commits.require_mode(state.types)
        with libraries_explained(self._unreachable):
            tables = self._open_tables(state)
        owned = _owned(state)
        left = LeftBehind(state.targets, owned)
        brought: dict[str, int] = {}
        for table in self._followed(state):
            with left.noting(table, partial(self._unreachable, table=table)):
                brought[table_folder(table)] = self._bring(tables, table, state)
        self._take_over(state, brought)
        for table in sorted(owned):  # no table waits for a view
            if self._views is not None and table_folder(table) in brought:
                with left.noting(table, self._views_missing):
                    self._views.keep(tables, table, self._unchanged.get(table))
        left.raise_any()

    def is_behind(self) -> bool:
        """Tell whether a table does not have all that the log holds for it."""
        state = self._manifest.read()
        if state.stream is None:
            return False
        self._commits.require_mode(state.types)
        with libraries_explained(self._unreachable):
            tables = self._open_tables(state)
            return any(self._lacks_some(tables, each, state) for each in self._followed(state))

    def _lacks_some(self, tables: LakeTables, table: TableId, state: LogState) -> bool:
        """Tell whether a table does not have all that the log holds for it."""
        folder, loaded = table_folder(table), tables.load(table)
        stamp = None if loaded is None else loaded.stamp
        if stamp is None or stamp.plan_id != state.plan_id:
            return loaded is not None or state.has_rows(folder)
        return stamp.files < state.settled(folder)

    def _take_over(self, state: LogState, brought: Mapping[str, int]) -> None:
        """Forget in the log the files of changes that the tables have by now, and delete them."""
        paths = [
            file.path
            for folder, count in brought.items()
            for file in state.changes.get(folder, [])[: max(0, count - state.taken.get(folder, 0))]
        ]

        plan_id = state.plan_id

        def judge(latest: LogState) -> Record | None:
            self._manifest.require_owner(latest, self._owner.generation)
            left = {
                folder: count
                for folder, count in brought.items()
                if latest.plan_id == plan_id and latest.taken.get(folder, 0) < count
            }
            return {"do": "taken", "files": left} if left else None

        self._manifest.commit(self._owner.generation, judge)
        for path in [*paths, *self._unused]:
            self._store.delete(path)

    def _bring(self, tables: LakeTables, table: TableId, state: LogState) -> int:
        """Bring one table to the end of the log; return how many files of changes it has then.

        Look again whenever somebody else was first.
        """
        for _ in range(_TRIES):
            try:
                with self._can_be_laid_out(table, state):
                    return self._bring_once(tables, table, state)
            except TableMovedError as moved:
                log.info("table moved, so it is looked at again: table=%s cause=%s", table, moved)
            except IntegrityError:
                if not self._is_given(table, state):
                    raise
        raise SinkBusyError(
            f"others committed to {table} in the lake {_TRIES} times, each time before us",
            str(self._store),
            "none: its changes are in the log, and are added by the next commit",
        )

    def _is_given(self, table: TableId, state: LogState) -> bool:
        """Tell whether the log has given files to a table meanwhile; `state` knows it then."""
        folder, before = table_folder(table), state.taken.get(table_folder(table), 0)
        return self._latest().taken.get(folder, 0) > before

    def _latest(self) -> LogState:
        """Return the log's state by now; an overtaken owner adds nothing of a newer one's."""
        state = self._manifest.read()
        self._manifest.require_owner(state, self._owner.generation)
        return state

    def _bring_once(self, tables: LakeTables, table: TableId, state: LogState) -> int:
        """Look what a table has, and add what is behind in one commit; return how much it has."""
        loaded = tables.load(table)
        stamp = None if loaded is None else self._stamp_of(loaded, table, state)
        is_of_plan = stamp is not None and stamp.plan_id == state.plan_id
        known = 0
        if stamp is not None and is_of_plan:
            self._require_same_log(table, stamp, state)
            known = stamp.files
        folder = table_folder(table)
        count = state.settled(folder)
        if loaded is not None and is_of_plan and known >= count:
            self._unchanged[table] = loaded.columns
            return count
        try:
            new = self._behind(loaded, table, state, known if is_of_plan else None)
            if not new.columns.names:
                return 0  # nothing says what its columns are
            order = None if new.is_anew or stamp is None else stamp.order
            with self._fits(table, state):
                commit = self._commits.next(table, loaded, new, order)
        except IntegrityError:
            if state.follows(table):
                raise
            return state.taken.get(folder, 0)  # left as it is until all its rows are read again
        wanted = Stamp(
            str(self._owner.pipeline), state.plan_id, self._owner.generation, count, commit.order
        )
        try:
            whole = NewTable(commit.files, new.columns, self._commits.layout_of(table, loaded))
            self._require_values(table, loaded, commit, state)
            if loaded is None:
                tables.create(table, whole, wanted)
            else:
                _made_on(loaded, commit, whole, wanted, is_anew=new.is_anew)
        except Exception as error:
            # who was first may have been this one, whose answer was lost
            never = isinstance(error, _NEVER_MADE)
            is_sure = never or tables.knows_outcomes
            if is_sure and not _has(tables.load(table), wanted):
                for each in commit.made:  # no commit names it, now or later
                    self._store.delete(each.name)
            raise
        self._unused += commit.unused
        log.info("table published: table=%s files=%d", table, len(new.changes))
        self._tidy(tables, table, wanted, loaded)
        return count

    def _behind(
        self, loaded: LoadedTable | None, table: TableId, state: LogState, known: int | None
    ) -> Behind:
        """Return what a table lacks.

        One that is to have other partitions, or that lost a column, begins anew if it can.
        """
        try:
            return self._behind_it(loaded, table, state, known)
        except RefusedError as error:
            _, *others = state.targets.get(table) or (table,)
            if not others:
                raise
            together = f"`reset` all that share it, with {state.to_reset(table)}: it is made anew"
            raise error.with_remedy(together) from error

    def _behind_it(
        self, loaded: LoadedTable | None, table: TableId, state: LogState, known: int | None
    ) -> Behind:
        """Return what a table lacks; of one that is shared the error says too little."""
        there = pa.schema([])
        if loaded is not None:
            there, wanted = loaded.columns, self._commits.layout_of(table, loaded)
            is_unfit = loaded.partitions != wanted.partitions or bool(loaded.lost_columns)
            if known is not None and is_unfit:
                anew = begun_anew(self._store, state, table, known)
                if anew is not None:
                    return anew
        widens = self._widens
        return behind(self._store, state, table, there=there, known=known, widens=widens)

    def _require_same_log(self, table: TableId, stamp: Stamp, state: LogState) -> None:
        """Refuse a table that has files of the log which the log has lost, or has other ones for.

        So it is with a copy that was taken bit by bit. What is written anew is a newer owner's.
        """
        folder = table_folder(table)
        if stamp.files > state.changes_in_all(folder):
            state = self._latest()  # others may have gone on since
        had = state.changes.get(folder, [])[: max(0, stamp.files - state.taken.get(folder, 0))]
        newest = max((generation_of(each.path.rpartition("/")[2]) or 0 for each in had), default=0)
        if stamp.files > state.changes_in_all(folder) or newest > stamp.generation:
            raise IntegrityError(
                f"the table {table} has changes of the log that the log does not have: it was set "
                "back, or table and log were copied at different times",
                where=str(self._store),
                risk="changes that are read again would be taken for those that the table has; "
                "nothing was committed to it",
                remedy="restore the whole folder as it was at one time, or `reset` the pipeline: "
                "its next run makes all tables anew",
            )

    def _require_values(
        self, table: TableId, loaded: LoadedTable | None, commit: NextCommit, state: LogState
    ) -> None:
        """Refuse NULL where others allow none: their readers would fail at it."""
        if loaded is None:
            return
        wanted = {field.name for field in loaded.columns if not field.nullable}
        if not wanted:
            return
        wanted -= {each.column for each in loaded.partitions or ()}  # not in each format's files
        footers = (pq.read_metadata(self._store.columns_of(each.name)) for each in commit.files)
        found = sorted({name for each in footers for name in without_value(each, wanted)})
        if found:
            raise self._refusal(
                f"others allow no NULL in {', '.join(found)} of {table}, and rows have some",
                "let the column be NULL again (ALTER COLUMN ... DROP NOT NULL), and its changes "
                "follow; or route the table to another name, then `reset` it with "
                f"{state.to_reset(table)}",
            )

    def _refusal(self, what: str, remedy: str) -> RefusedError:
        """Return the error for a table that is not committed to until a person has done more."""
        return RefusedError(
            what,
            where=str(self._store),
            risk="none: the log has its changes, and the table has what it had",
            remedy=remedy,
        )

    @contextmanager
    def _can_be_laid_out(self, table: TableId, state: LogState) -> Iterator[None]:
        """Tell what keeps the table from being committed to: it is no outage, and comes again."""
        option = state.to_reset(table)
        try:
            yield
        except ClosedTableError as error:
            raise self._refusal(
                f"others have closed {table} to this pipeline: {said_by(error)}",
                "take off the table what it names, and its changes follow; or route the table to "
                f"another name, then `reset` it with {option}",
            ) from error
        except UnfitLayoutError as error:
            raise self._refusal(
                f"the files of {table} cannot be laid out as they are to be: {error}",
                "write what fits under partition_by, or route the table to another name; then "
                f"`reset` it with {option}",
            ) from error

    @contextmanager
    def _fits(self, table: TableId, state: LogState) -> Iterator[None]:
        """Tell what Arrow refuses of a table's changes: it is no outage, and would come again."""
        option = state.to_reset(table)
        try:
            yield
        except pa.ArrowException as error:
            raise IntegrityError(
                f"the changes of {table} in the log do not become its rows: {said_by(error)}",
                where=str(self._store),
                risk="none: the log has them, and the table has what it had",
                remedy=f"`reset` it with {option}: it is made anew, and the others flow on",
            ) from error

    def _followed(self, state: LogState) -> list[TableId]:
        """Return the tables that the stream owns, and those that it owned: the log has them."""
        tables = _owned(state)
        changed = {*state.changes, *state.kept} - {TRANSACTION}
        left = {table_of_folder(folder) for folder in changed} - tables
        return sorted(tables | {each for each in left if self._commits.takes(each)})

    def _tidy(
        self, tables: LakeTables, table: TableId, told: Stamp, known: LoadedTable | None
    ) -> None:
        """Compact a table, and drop what is too old of its history, if its last commit is `told`.

        What fails is done by the next commit. `known`: the table that was committed to.
        """
        loaded = None
        for work in (self._compact, self._drop_old):
            try:
                if loaded is None and (known is None or known.stamp != told):
                    known = tables.load(table)
                loaded, known = loaded or known, None
                if loaded is None or loaded.stamp != told:
                    return
                loaded = work(tables, table, loaded)
            except TableMovedError:
                return
            except Exception as error:  # noqa: BLE001 - the rows are there, whatever it is
                log.warning("old files of a table stay: table=%s cause=%s", table, error)

    def _drop_old(self, _: LakeTables, __: TableId, loaded: LoadedTable) -> None:
        """Drop what is too old of a table's history."""
        loaded.tidy()

    def _compact(
        self, tables: LakeTables, table: TableId, loaded: LoadedTable
    ) -> LoadedTable | None:
        """Put larger files in the place of a table's small ones, if these are many.

        Return the table as it is then; None if it is to be loaded again.
        """
        stamp = loaded.stamp
        layout = self._commits.layout_of(table, loaded)
        found = compacted(self._store, table, loaded, layout) if self._commits.compacts else None
        if found is None or stamp is None:
            return loaded
        try:
            found.commit(loaded, stamp)
        except Exception as error:
            # who was first may have been this one, whose answer was lost
            is_sure = isinstance(error, TableMovedError) or tables.knows_outcomes
            if is_sure and not found.is_in(tables.load(table)):
                found.out.discard()
            raise
        log.info("table compacted: table=%s files=%d", table, len(found.gone))
        return None

    def _stamp_of(self, loaded: LoadedTable, table: TableId, state: LogState) -> Stamp:
        """Return what a table has of our log; refuse one of others, and stop for a newer owner."""
        stamp = own_stamp(loaded, table, self._store, str(self._owner.pipeline))
        if stamp.generation > self._owner.generation:
            raise fenced(self._manifest.place(state), stamp.generation, self._owner.generation)
        return stamp

    def _views_missing(self, error: Exception) -> SinkUnreachableError:
        """Return the error for a catalog that keeps tables, and does not do so with views."""
        return SinkUnreachableError(
            f"views of current rows cannot be made: {said_by(error)}",
            where=f"{self._store}, sink.catalog.view",
            risk="none: the tables have followed",
            remedy="mend what it says, such as an account that may not make views, or leave view "
            "out of sink.catalog",
        )

    def _unreachable(self, error: Exception, table: TableId | None = None) -> SinkUnreachableError:
        """Return the error for a folder or catalog that does not do what it is asked."""
        return SinkUnreachableError(
            f"{table or 'tables'} cannot be committed to: {said_by(error)}",
            where=str(self._store),
            risk="none: the changes are in the log, and the tables have what they had",
            remedy="mend what it says, such as a folder that cannot be written to or is full; the "
            "tables catch up by themselves",
        )


def _owned(state: LogState) -> set[TableId]:
    """Return the tables that the stream owns, stopped ones, too."""
    owned = {progress.table for progress in state.stream.tables} if state.stream else set()
    owned |= {each.table for each in state.stopped}
    return {sink for sink, sources in state.targets.items() if owned.intersection(sources)}


def _made_on(
    loaded: LoadedTable, commit: NextCommit, whole: NewTable, wanted: Stamp, *, is_anew: bool
) -> None:
    """Commit to a table as it was loaded; `is_anew`: it has nothing else then."""
    if is_anew:
        loaded.exchange(whole, wanted)
    elif commit.gone:
        loaded.replace(commit.gone, commit.files, whole.columns, wanted)
    else:
        loaded.append(commit.files, whole.columns, wanted)


def _has(loaded: LoadedTable | None, wanted: Stamp) -> bool:
    """Tell whether a commit whose outcome is unknown was made, by what the table says."""
    stamp = None if loaded is None else loaded.stamp
    return stamp is not None and (stamp.plan_id, stamp.files) == (wanted.plan_id, wanted.files)
