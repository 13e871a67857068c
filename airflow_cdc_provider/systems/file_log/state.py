"""What a change log's manifests say, all of them together.

Each manifest is one commit. The state is what they add up to, in order; a checkpoint is a state
written down, so that not all of them are read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace

from airflow_cdc_provider.core.codec import (
    apart_from_json,
    apart_to_json,
    position_from_json,
    position_to_json,
    stream_from_text,
    stream_to_text,
)
from airflow_cdc_provider.core.errors import IntegrityError, RefusedError
from airflow_cdc_provider.core.hand_off_check import Report
from airflow_cdc_provider.core.identifiers import PipelineName, TableId, table_option
from airflow_cdc_provider.core.known_log import NONE_APART, TablesApart
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.row_counts import NO_ROWS, RowCounts
from airflow_cdc_provider.core.schema_changes import SchemaChange
from airflow_cdc_provider.core.schema_codec import change_from_json, change_to_json
from airflow_cdc_provider.core.stopped_tables import StoppedTable
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.core.stream_counts import TableChangeCount
from airflow_cdc_provider.core.stream_split import StreamSplit, TableProgress
from airflow_cdc_provider.engine.ledger.records import (
    ChangeBegun,
    ChangeEnded,
    ChangesCounted,
    Records,
    StreamStored,
    TablesOwned,
    TableStopped,
)
from airflow_cdc_provider.engine.ledger.state import LedgerState, Place, Slot
from airflow_cdc_provider.systems.file_log.files import SealedFile
from airflow_cdc_provider.systems.file_log.join_state import JoinState
from airflow_cdc_provider.systems.file_log.layout import table_of_folder
from airflow_cdc_provider.systems.file_log.published import (
    Counts,
    PublishedSplit,
    Record,
    Targets,
    counted,
    published_from,
    published_to,
    targets_from,
    targets_to,
)
from airflow_cdc_provider.systems.file_log.stored_records import record_from_json
from airflow_cdc_provider.systems.file_log.unsettled import (
    Unsettled,
    begun,
    unsettled_from,
    unsettled_to,
)

NATIVE = "native"
"""The types of a log whose values in Parquet have types of their own."""


@dataclass(slots=True)
class LogState:
    """The change log's state after some version of its manifest."""

    version: int = 0
    pipeline: str = ""
    generation: int = 0
    plan_id: str = ""
    types: str = ""
    """Of values in Parquet: NATIVE, or Debezium's, as in all logs that were begun before."""
    targets: Targets = field(default_factory=dict)
    """What each table of the sink is copied from."""
    splits: dict[str, PublishedSplit] = field(default_factory=dict)
    stream: StreamSplit | None = None
    counts: Counts = field(default_factory=Counts)
    changed: dict[TableId, TableChangeCount] = field(default_factory=dict)
    """How much of each source table was changed."""
    changes: dict[str, list[SealedFile]] = field(default_factory=dict)
    """Files of changes in log order, by folder; without those that a table has taken over."""
    kept: dict[str, list[SealedFile]] = field(default_factory=dict)
    """Files of splits that do not count any more, before all changes: the stream followed them."""
    begins_at: dict[str, int] = field(default_factory=dict)
    """By folder, with which file of changes, counted in the whole plan, its table began last."""
    shards_begin: dict[str, dict[TableId, int]] = field(default_factory=dict)
    """The same for each table of the source that has begun again in a folder that it shares."""
    unsettled: dict[str, tuple[Unsettled, ...]] = field(default_factory=dict)
    """By folder, from where on its files are of tables that have not all of their rows yet."""
    taken: dict[str, int] = field(default_factory=dict)
    """How many files of changes a table has taken over, by folder: they are gone from the log."""
    stopped: tuple[StoppedTable, ...] = ()
    """Tables that are isolated from the stream."""
    begun: tuple[SchemaChange, ...] = ()
    """Schema changes that were begun and are not ended, oldest first."""
    apart: TablesApart = NONE_APART
    """Tables that are not where the stream is."""
    joins: JoinState = field(default_factory=JoinState)
    former: dict[TableId, set[str]] = field(default_factory=dict)
    """Columns that a source table had before it was changed, in lower case: events have them."""
    untold: dict[TableId, set[str]] = field(default_factory=dict)
    """Columns that have come to a source table, and no file was written for yet to tell them."""
    servers_left: set[str] = field(default_factory=set)
    """Servers whose logs the stream has read, and does not read any more."""
    basis: int = field(default=0, compare=False)
    """The last version that changed what is chosen by from a batch of changes."""

    def apply(self, record: Record) -> None:
        """Apply the commit of the next version."""
        before = self.stream, self.counts.events
        self._apply(record)
        if record["do"] == "join" or before != (self.stream, self.counts.events):
            self.basis = self.version
        was, now = (each.start.server if each else "" for each in (before[0], self.stream))
        if was and now and was != now:
            self.servers_left.add(was)

    def _apply(self, record: Record) -> None:
        """Apply the commit of the next version to what it concerns."""
        self.version = record["version"]
        self.pipeline = record["pipeline"]
        self.generation = record["generation"]
        match record["do"]:
            case "take over":
                pass
            case "claim":
                self.targets = targets_from(record["targets"])
            case "start plan":
                self._start_plan(record["plan"], record.get("types", ""))
            case "publish":
                published = published_from(record)
                self.splits[published.split.split_id] = published
            case "hand off":
                self._hand_off(stream_from_text(record["stream"]), record["at_us"])
            case "records":
                self._take(tuple(map(record_from_json, record["records"])), record["at_us"])
            case "set end":
                stop, stream = record["stop"], self._required_stream()
                stop = None if stop is None else position_from_json(stop)
                self.stream = stream.ending_at(stop, record["stop_by"])
            case "pass over":
                self._move(record)
            case "change":
                self._change(record)
            case _:
                self._apply_beside(record)

    def _apply_beside(self, record: Record) -> None:
        """Apply a commit of who works beside the stream: rows read again, tables that follow."""
        match record["do"]:
            case "taken":
                self._hand_over(record["files"])
            case "tell columns":
                self._add_told(record)
            case "void":
                self._add_file(record)
                self.counts.events = record["events"]
            case "begin joins":
                self.joins.begin(record)
            case "join" | "join again":
                self._join(record)
            case "forget joins":
                self.joins.forget(record["request"])
            case other:
                raise IntegrityError(
                    f"manifest {self.version} does {other!r}, which this release does not know",
                    where="change log",
                    risk="which files count is unknown; nothing was changed",
                    remedy="use the release that wrote it",
                )

    def _start_plan(self, plan_id: str, types: str) -> None:
        """Forget splits, stream and changes of older plans."""
        self.plan_id, self.types = plan_id, types
        self.splits, self.stream = {}, None
        self.counts, self.changes, self.changed = Counts(), {}, {}
        self.kept, self.taken, self.begins_at, self.unsettled = {}, {}, {}, {}
        self.shards_begin = {}
        self.stopped, self.begun, self.apart = (), (), NONE_APART
        self.joins, self.former, self.untold = JoinState(), {}, {}
        self.servers_left = set()

    def as_ledger(self, place: Place, reports: Sequence[Report] | None) -> LedgerState:
        """Return what decisions are made from; `reports` are those that are needed."""
        stream = self.stream
        return LedgerState(
            place,
            self.generation,
            self.plan_id,
            reports=None if reports is None else tuple(reports),
            slots=() if stream is None else (Slot(stream.start, stream, self.apart),),
            stopped=self.stopped,
            changes=self.begun,
        )

    def reports(self) -> list[Report]:
        """Return the finished splits with their reports, in order."""
        splits = self.splits.values()
        ordered = sorted(splits, key=lambda each: (each.split.table, each.split.number))
        return [(each.split, each.report) for each in ordered]

    def _hand_off(self, stream: StreamSplit, at_us: int) -> None:
        """Store the stream; splits of tables that it does not own, or reads again, do not count."""
        tables = {progress.table for progress in stream.tables}
        owned = tables | {each.table for each in self.stopped}
        self._take((StreamStored(stream), TablesOwned(frozenset(owned), stream.unread)), at_us)

    def _take(self, records: Records, at_us: int) -> None:
        """Take what was decided at a time into the state."""
        place = Place(PipelineName(self.pipeline), where="change log", book="manifest")
        before, progress = self.as_ledger(place, self.reports()), self._progress()
        after = before.with_records(records)
        self._keep_splits({split.split_id for split, _ in after.reports or ()}, before)
        known = {each.table: each.since_us for each in self.stopped}
        self.stopped = tuple(
            replace(each, since_us=known.get(each.table, at_us)) for each in after.stopped or ()
        )
        self.begun = after.changes or ()
        self.stream = after.stream
        for slot in after.slots or ():
            self.apart = slot.apart
        self.joins.follow(progress, self._progress(), _begun_again(records, before.changes or ()))
        self._settle()
        self._follow_columns(records, before.changes or ())
        for record in records:
            if isinstance(record, TablesOwned):
                self.joins.keep(record.tables)
            elif isinstance(record, ChangeBegun):
                names = {each.name.lower() for each in record.change.before.target.copied_columns}
                self.former.setdefault(record.change.table, set()).update(names)
            elif isinstance(record, ChangesCounted):
                for table, count in record.tables.items():
                    self._count(table, count, record.position, at_us)

    def _settle(self) -> None:
        """Have files of changes count of which no table is being read any more.

        What is left of a shard that has gone while it was read holds no other up.
        """
        owned = {each.table: each.is_unread for each in self._progress()}
        found = {}
        for folder, waiting in self.unsettled.items():
            others = len(self.sources_of(folder)) > 1
            left = [each for each in waiting if owned.get(each.table, not others)]
            if left:
                found[folder] = tuple(left)
        self.unsettled = found

    def sources_of(self, folder: str) -> tuple[TableId, ...]:
        """Return the tables of the source that go to a folder."""
        return self.targets.get(table_of_folder(folder), ())

    def to_reset(self, sink_table: TableId) -> str:
        """Return the options of `reset` that have a table of the sink begin again."""
        sources = self.targets.get(sink_table) or (sink_table,)
        return " ".join(map(table_option, sources))

    def _follow_columns(self, records: Records, begun: Sequence[SchemaChange]) -> None:
        """Note the columns that come by changes that end, and forget those that go."""
        ended = {record.table for record in records if isinstance(record, ChangeEnded)}
        for change in begun:
            if change.table not in ended:
                continue
            was, now = (
                {column.name for column in plan.target.copied_columns}
                for plan in (change.before, change.after)
            )
            new = (self.untold.pop(change.table, set()) | (now - was)) & now
            if new and not change.rereads:  # the rows that are read again tell all
                self.untold[change.table] = new

    def _add_told(self, record: Record) -> None:
        """Add a file without a row, by which a table gets columns that have come."""
        table = TableId.parse(record["table"])
        left = self.untold.pop(table, set()) - set(record["columns"])
        if left:
            self.untold[table] = left
        self._add_file(record)

    def _add_file(self, record: Record) -> None:
        """Add a file to those of a folder's changes."""
        self.changes.setdefault(record["folder"], []).append(SealedFile(**record["file"]))

    def _progress(self) -> list[TableProgress]:
        """Return the progress of all tables, of isolated ones too."""
        streams = [each.stream for each in self.stopped]
        streams += [] if self.stream is None else [self.stream]
        return [progress for stream in streams for progress in stream.tables]

    def follows(self, sink_table: TableId) -> bool:
        """Tell whether a table is followed, or isolated, and all its rows are in the log."""
        sources = self.targets.get(sink_table, ())
        read = {each.table for each in self._progress() if not each.is_unread}
        return bool(sources) and read.issuperset(sources)

    def _join(self, record: Record) -> None:
        """Add the rows of a split that has joined the stream."""
        joined, folder = self.joins.join(record), record["folder"]
        if record["begins"]:
            self._begin(joined.split.table, folder, is_shard=record.get("shard", False))
        files = [SealedFile(**each) for each in record["files"]]
        self.changes.setdefault(folder, []).extend(files)
        self.counts.events = record.get("events", self.counts.events)
        self._count(joined.split.table, max(joined.rows, 1), joined.position, record["at_us"])

    def _begin(self, table: TableId, folder: str, *, is_shard: bool) -> None:
        """Note that a table begins, or begins again, with the next file of a folder.

        What others have there goes on, so a folder that is shared begins only once all have.
        """
        count, waiting = self.changes_in_all(folder), self.unsettled.get(folder, ())
        self.unsettled[folder] = begun(waiting, table, count, is_shard=is_shard)
        if not is_shard:
            self.begins_at[folder] = count
            return
        begins = self.shards_begin.setdefault(folder, {})
        begins[table] = count
        sources = self.sources_of(folder)
        if begins.keys() >= {*sources}:
            self.begins_at[folder] = min(begins[source] for source in sources)

    def _keep_splits(self, kept: set[str], before: LedgerState) -> None:
        """Forget all other splits; files of tables that the stream has followed stay in the log."""
        gone = [each for split_id, each in self.splits.items() if split_id not in kept]
        self.splits = {name: each for name, each in self.splits.items() if name in kept}
        for each in sorted(gone, key=lambda each: each.split.number):
            if before.owns(each.split.table):
                self.kept.setdefault(each.folder, []).extend(each.files)

    def _count(
        self,
        table: TableId,
        count: int,
        position: LogPosition,
        changed_us: int,
        rows: RowCounts = NO_ROWS,
    ) -> None:
        """Add to a table's count of changes; one that was not changed is not counted."""
        if not count:
            return
        before = self.changed.get(table, TableChangeCount(0, position))
        self.changed[table] = TableChangeCount(
            before.changes + count,
            position,
            before.rows + rows,
            max(before.changed_us, changed_us),
        )

    def stream_of(self, alone: TableId | None) -> StreamSplit | None:
        """Return the stream, or that of one isolated table `alone`; None if there is none."""
        if alone is None:
            return self.stream
        return next((each.stream for each in self.stopped if each.table == alone), None)

    def _hand_over(self, counts: dict[str, int]) -> None:
        """Forget files of changes that tables have; `counts` are of the whole plan."""
        for folder, count in counts.items():
            self.changes[folder] = self.changes[folder][count - self.taken.get(folder, 0) :]
            self.taken[folder] = count

    def changes_from(self, folder: str, number: int) -> list[SealedFile]:
        """Return a folder's files of changes from one on, counted in the whole plan.

        Those of a table that has not all of its rows yet are left out.
        """
        taken = self.taken.get(folder, 0)
        if number < taken:
            raise ValueError(f"file {number} of {folder} is gone, the log begins with {taken}")
        files = self.changes.get(folder, [])
        return files[number - taken : self.settled(folder) - taken]

    def settled(self, folder: str) -> int:
        """Return how many files of changes a table may have: up to where all rows are there."""
        waiting = self.unsettled.get(folder, ())
        return min((each.first for each in waiting), default=self.changes_in_all(folder))

    def changes_in_all(self, folder: str) -> int:
        """Return how many files of changes a folder has had in the whole plan."""
        return self.taken.get(folder, 0) + len(self.changes.get(folder, []))

    def _move(self, record: Record) -> None:
        """Move the stream, or an isolated table, to a commit's position."""
        position = position_from_json(record["position"])
        if "alone" not in record:
            self.stream = self._required_stream().passed(position)
            return
        alone = TableId.parse(record["alone"])
        self.stopped = tuple(
            replace(each, stream=each.stream.passed(position)) if each.table == alone else each
            for each in self.stopped
        )

    def _required_stream(self) -> StreamSplit:
        """Return the stream; an error before the hand-off."""
        if self.stream is None:
            raise IntegrityError(
                f"manifest {self.version} has changes before the hand-off",
                where="change log",
                risk="which files count is unknown; nothing was changed",
                remedy="restore the folder from a copy, or use an empty one",
            )
        return self.stream

    def _change(self, record: Record) -> None:
        """Add a commit's files and counts of changes."""
        self._move(record)
        for folder, files in record["files"].items():
            self.changes.setdefault(folder, []).extend(SealedFile(**each) for each in files)
        counts = self.counts
        counts.batches += 1
        counts.changes += record["changes"]
        counts.events = record.get("events", 0)
        counts.transactions += record["transactions"]
        counts.source_committed_us = max(counts.source_committed_us, record["source_committed_us"])
        counts.committed_us = record["at_us"]
        position = position_from_json(record["position"])
        rows_of = record.get("rows_of", {})
        for name, count in record.get("changes_of", {}).items():
            rows, changed_us = RowCounts(*rows_of.get(name, ())), record["source_committed_us"]
            self._count(TableId.parse(name), count, position, changed_us, rows)

    def read_files(self, folder: str) -> Iterator[SealedFile]:
        """Yield the files of a folder's rows as a snapshot read them."""
        yield from self.kept.get(folder, ())
        splits = (each for each in self.splits.values() if each.folder == folder)
        for published in sorted(splits, key=lambda each: each.split.number):
            yield from published.files

    def files(self, folder: str) -> Iterator[SealedFile]:
        """Yield a folder's files in the order to read them."""
        yield from self.read_files(folder)
        yield from self.changes.get(folder, ())

    def has_rows(self, folder: str) -> bool:
        """Tell whether the log has, or had, all rows of a table."""
        return bool(self.settled(folder)) or next(self.read_files(folder), None) is not None

    def holds(self, folder: str) -> bool:
        """Tell whether the log has, or had, anything of a table."""
        return bool(self.changes_in_all(folder)) or next(self.read_files(folder), None) is not None

    def require_form(self, form: str, where: str) -> None:
        """Refuse another file format than the change log has already."""
        published = (file for each in self.splits.values() for file in each.files)
        others = (*self.kept.values(), *self.changes.values())
        file = next(published, None) or next((file for files in others for file in files), None)
        if file is not None and not file.path.endswith(f".{form}"):
            raise RefusedError(
                f"the change log has files such as {file.path}, and is now to be {form}",
                where=where,
                risk="readers would find two forms in one folder; nothing was written",
                remedy="write the former format, or `reset` the pipeline: the log begins anew",
            )

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the folders that have files in the change log."""
        names = {each.folder for each in self.splits.values() if each.files}
        return tuple(sorted(names | {*self.kept, *self.changes, *self.taken}))

    def to_json(self) -> Record:
        """Return the state as JSON, for a checkpoint."""
        return {
            "version": self.version,
            "pipeline": self.pipeline,
            "generation": self.generation,
            "plan": self.plan_id,
            "types": self.types,
            "targets": targets_to(self.targets),
            "splits": [published_to(each) for each in self.splits.values()],
            "stream": None if self.stream is None else stream_to_text(self.stream),
            "counts": self.counts.to_json(),
            "changed": [
                [
                    str(table),
                    each.changes,
                    position_to_json(each.position),
                    astuple(each.rows),
                    each.changed_us,
                ]
                for table, each in self.changed.items()
            ],
            "changes": _files_to(self.changes),
            **self._apart_to_json(),
        }

    def _apart_to_json(self) -> Record:
        """Return as JSON what most logs have nothing of: then it is left out."""
        stopped = [
            [stream_to_text(each.stream), each.error.text, each.since_us] for each in self.stopped
        ]
        form = {
            "kept": _files_to(self.kept),
            "taken": self.taken,
            "begins_at": self.begins_at,
            "shards_begin": {
                folder: {str(table): count for table, count in begins.items()}
                for folder, begins in self.shards_begin.items()
            },
            "unsettled": unsettled_to(self.unsettled),
            "stopped": stopped,
            "begun": [change_to_json(change) for change in self.begun],
            "apart": apart_to_json(self.apart),
            "joins": self.joins.to_json(),
            "former": _names_to(self.former),
            "untold": _names_to(self.untold),
            "servers_left": sorted(self.servers_left),
        }
        return {name: value for name, value in form.items() if value}

    @classmethod
    def from_json(cls, form: Record) -> LogState:
        """Read a state from the JSON of a checkpoint."""
        published = [published_from(each) for each in form["splits"]]
        return cls(
            version=form["version"],
            pipeline=form["pipeline"],
            generation=form["generation"],
            plan_id=form["plan"],
            types=form.get("types", ""),
            targets=targets_from(form["targets"]),
            splits={each.split.split_id: each for each in published},
            stream=None if form["stream"] is None else stream_from_text(form["stream"]),
            counts=Counts(**form["counts"]),
            changed=dict(counted(*each) for each in form.get("changed", ())),
            changes=_files_from(form["changes"]),
            kept=_files_from(form.get("kept", {})),
            taken=dict(form.get("taken", {})),
            begins_at=dict(form.get("begins_at", {})),
            shards_begin={
                folder: {TableId.parse(table): count for table, count in begins.items()}
                for folder, begins in form.get("shards_begin", {}).items()
            },
            unsettled=unsettled_from(form.get("unsettled", {})),
            stopped=tuple(
                StoppedTable(stream_from_text(stream), StoredError(error), since_us)
                for stream, error, since_us in form.get("stopped", ())
            ),
            begun=tuple(map(change_from_json, form.get("begun", ()))),
            apart=apart_from_json(form.get("apart", ())),
            joins=JoinState.from_json(form.get("joins", {})),
            former=_names_from(form.get("former", {})),
            untold=_names_from(form.get("untold", {})),
            servers_left=set(form.get("servers_left", ())),
            basis=form["version"],
        )


def _begun_again(records: Records, begun: Sequence[SchemaChange]) -> set[TableId]:
    """Return the tables whose rows of before are not those that are to be read.

    What was begun of a table's definition ends with a table that leaves, or is read again; also
    where its rows stay, by a change that moves none, or while it is isolated.
    """
    ended = {record.table for record in records if isinstance(record, ChangeEnded)}
    if not any(isinstance(record, TablesOwned) for record in records):
        ended -= {change.table for change in begun if not change.rereads}
    stopped = _tables_of(record.stream for record in records if isinstance(record, TableStopped))
    stored = _tables_of(record.stream for record in records if isinstance(record, StreamStored))
    return (ended - stopped) | stored


def _tables_of(streams: Iterable[StreamSplit]) -> set[TableId]:
    """Return the tables of some streams."""
    return {progress.table for stream in streams for progress in stream.tables}


def _names_to(names: Mapping[TableId, set[str]]) -> Record:
    """Return names of columns by table as JSON."""
    return {str(table): sorted(some) for table, some in names.items()}


def _names_from(form: Record) -> dict[TableId, set[str]]:
    """Read names of columns by table from JSON."""
    return {TableId.parse(table): set(some) for table, some in form.items()}


def _files_to(files: Mapping[str, Sequence[SealedFile]]) -> Record:
    """Return files by folder as JSON."""
    return {folder: [asdict(each) for each in some] for folder, some in files.items()}


def _files_from(form: Record) -> dict[str, list[SealedFile]]:
    """Read files by folder from JSON."""
    return {folder: [SealedFile(**each) for each in some] for folder, some in form.items()}
