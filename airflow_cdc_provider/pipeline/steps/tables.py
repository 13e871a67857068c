"""Which tables the pipeline copies, as the source has them now, and where each goes.

What only the server can tell is wrong with the file (a table that does not exist, a route that
fits nothing, two tables with one target) is refused with the file's line and the fix.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from airflow_cdc_provider.columns.source_port import (
    LOOK_AT_TABLES,
    Catalogue,
    LogReading,
    ReadsText,
    Source,
)
from airflow_cdc_provider.core.errors import UnsupportedTableError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_filters import RowFilter
from airflow_cdc_provider.core.salts import proven
from airflow_cdc_provider.core.shards import Routed, clashes
from airflow_cdc_provider.core.table_facts import TableFacts, TableKind
from airflow_cdc_provider.core.table_patterns import (
    ALL_TABLES,
    MAX_NAME,
    Route,
    TablePattern,
    name_in,
    sink_table,
)
from airflow_cdc_provider.core.table_picks import exclude_line, in_file
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.engine.sink.port import Sink
from airflow_cdc_provider.pipeline.file.loader import LoadedPipeline
from airflow_cdc_provider.pipeline.file.problems import Path
from airflow_cdc_provider.pipeline.file.table_choice import mistyped
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.sink import sink_of, source_of

Found = tuple[Path, str, str]
_NAME_ANOTHER = (
    "remove it, or name a unique key of whole, stored columns that are all NOT NULL, of a table "
    "without a primary key"
)


@dataclass(frozen=True, slots=True)
class WaitingPattern:
    """A pattern with a star that fits no table yet; tables that come later are added."""

    where: str
    """The setting of the file that has it."""
    pattern: str
    fix: str


@dataclass(frozen=True, slots=True)
class Captured:
    """The tables that the file picks at the source now, with their plans."""

    plans: tuple[TablePlan, ...]
    picked: tuple[TableFacts, ...]
    """Everything the patterns pick, views and the like included."""
    server_uuid: str
    """The source's identity."""
    names_fold_case: bool
    waiting_patterns: tuple[WaitingPattern, ...] = ()
    """Patterns that wait for tables to come."""
    unfit: Mapping[TableId, Found] = field(default_factory=dict)
    """Tables that the file's columns do not fit as they are now; their plans are without them."""

    def without(self, tables: Collection[TableId]) -> Captured:
        """Return the same without some tables."""
        return self._those(lambda table: table not in tables)

    def only(self, tables: Collection[TableId]) -> Captured:
        """Return the same with only some tables."""
        return self._those(lambda table: table in tables)

    def _those(self, wanted: Callable[[TableId], bool]) -> Captured:
        """Return the same with only the tables for which `wanted` is true."""
        return replace(
            self,
            plans=tuple(plan for plan in self.plans if wanted(plan.schema.table)),
            picked=tuple(fact for fact in self.picked if wanted(fact.table)),
        )


def captured_tables(run: Run, *, purpose: str = LOOK_AT_TABLES, all_anew: bool = False) -> Captured:
    """Query the source for the pipeline's tables; `purpose` is named in errors.

    Refused if the file's columns do not fit a table, unless there is a stream: it stops one of its
    own alone, and has none of the others. Not so if `all_anew` are to be planned.
    """
    source = source_of(run)
    with source.catalogue(purpose=purpose) as catalogue:
        captured = tables_of(run.loaded, source, catalogue, sink_of(run))
    if all_anew or not run.store.is_handed_off(run.name):
        require_columns(run, captured, captured.unfit)
    return captured


def require_columns(run: Run, captured: Captured, tables: Iterable[TableId]) -> None:
    """Refuse the file if its columns do not fit one of these tables."""
    unfit = [captured.unfit[table] for table in tables if table in captured.unfit]
    if unfit:
        raise run.loaded.refusal(*unfit)


def picked_now(run: Run) -> tuple[TableId, ...]:
    """Query the source for the names of picked base tables, without their definitions."""
    source = run.model.source
    with source_of(run).catalogue() as catalogue:
        facts = catalogue.picked(source.patterns, source.excluded)
    return tuple(fact.table for fact in facts if fact.kind is TableKind.BASE)


def tables_of(loaded: LoadedPipeline, source: Source, catalogue: Catalogue, sink: Sink) -> Captured:
    """Return the tables that the file picks, with plans; refuse the file if it is wrong.

    `catalogue` is the source's, open.
    """
    section, fold = loaded.model.source, catalogue.names_fold_case
    facts = catalogue.picked(section.patterns, section.excluded)
    base = [fact for fact in facts if fact.kind is TableKind.BASE]
    reserved = list(_reserved_patterns(section.patterns, catalogue))
    if reserved:
        raise loaded.refusal(*reserved)

    @cache
    def names() -> list[str]:
        every = catalogue.picked([ALL_TABLES])
        return [str(fact.table) for fact in every]

    unmatched = [
        *_unmatched_patterns(section.patterns, facts, base, fold=fold, names=names),
        *_unmatched_routes(loaded, base, fold=fold),
        *_unmatched_settings(loaded, base, fold=fold),
    ]
    may_wait = bool(base) and section.new_tables == "add" and sink.abilities.joins
    waiting = [one for one in unmatched if isinstance(one, WaitingPattern)] if may_wait else []
    found = [_as_found(loaded, one) for one in unmatched if one not in waiting]
    if found:
        raise loaded.refusal(*found)
    schemas = catalogue.schemas([fact.table for fact in base])
    routes = loaded.model.sink.routes
    planner = _Planner(loaded, source, sink, fold=fold)
    plans = tuple(
        planner.plan_of(fact, schema, sink_table(fact.table, routes, ignore_case=fold))
        for fact in base
        if (schema := schemas.get(fact.table)) is not None
    )
    found = [*_reserved_targets(loaded, plans, sink), *_wrong_keys(loaded, plans, fold=fold)]
    if found:
        raise loaded.refusal(*found)
    return Captured(plans, tuple(facts), catalogue.identity, fold, tuple(waiting), planner.refused)


class _Planner:
    """Makes the plans of tables, and collects what of the file does not fit their definitions."""

    def __init__(self, loaded: LoadedPipeline, source: Source, sink: Sink, *, fold: bool) -> None:
        self._loaded = loaded
        self._fold = fold
        self._source = source
        self._sink = sink
        self.refused: dict[TableId, Found] = {}

    def plan_of(self, fact: TableFacts, schema: TableSchema, target: TableId) -> TablePlan:
        """Return a table's plan; as the source has it, if the file's columns do not fit."""
        alike = TablePlan.alike
        if wrong := wrong_key(schema):
            self._refuse(fact.table, f"{fact.table}: {wrong}", _NAME_ANOTHER, "key")
            return alike(schema, target, fact.estimated_rows)
        shape = proven(self._loaded.model.shape_of(fact.table, ignore_case=self._fold))
        if not schema.has_key and not shape.is_identity:
            what = f"{fact.table} has no key, so it is copied as it is: all of its rows and columns"
            fix = "give it a key, leave it out by source.exclude, or name the others here alone"
            self._refuse(fact.table, what, fix)
            return alike(schema, target, fact.estimated_rows)
        if lost := sorted({*shape.left_out} - {column.name for column in schema.columns}):
            self._refuse(fact.table, f"{fact.table} has no column {lost[0]}", _columns(schema))
            return alike(schema, target, fact.estimated_rows)
        try:
            made = self._sink.target_of(schema, target, shape)
            self._require_judgeable(shape.where, schema)
        except ValueError as error:
            self._refuse(fact.table, str(error), _columns(schema))
            return alike(schema, target, fact.estimated_rows)
        return TablePlan(schema, made, fact.estimated_rows, shape, fact.estimated_bytes)

    def _require_judgeable(self, where: RowFilter | None, schema: TableSchema) -> None:
        """Refuse a condition on rows that cannot be judged; `ValueError` names the column."""
        if where is None:
            return
        from airflow_cdc_provider.columns.filtering import (  # noqa: PLC0415 - loads Arrow
            require_judgeable,
        )

        reading = LogReading({schema.table: schema}, 0, options=self._loaded.model.source_options)
        columns = self._source.change_columns(reading)[schema.table]
        require_judgeable(where, schema, columns)
        if isinstance(self._source, ReadsText):
            self._source.require_as_printed(schema, where)

    def _refuse(self, table: TableId, what: str, fix: str, *setting: str) -> None:
        """Note what of the file's section does not fit a table, and what mends it."""
        name = name_in(self._loaded.model.tables, table, ignore_case=self._fold)
        self.refused[table] = (("tables", name or str(table), *setting), what, fix)


def wrong_key(schema: TableSchema) -> str:
    """Return why the key that the file names for a table is not to be named; empty if it is."""
    if schema.named_key and schema.has_key and not schema.key_name:
        primary = ", ".join(schema.primary_key)
        return f"its rows are told apart by its primary key ({primary}), and by no other"
    return schema.key_problem


def _columns(schema: TableSchema) -> str:
    """Return the advice on which columns a section may name."""
    names = ", ".join(column.name for column in schema.copied_columns)
    return f"its columns are {names}; computed columns are never copied"


def require_separate(loaded: LoadedPipeline, plans: Sequence[TablePlan]) -> None:
    """Refuse the file if two tables go to one sink table that they cannot share."""
    found = [problem for _, problem in shared_targets(loaded, plans)]
    if found:
        raise loaded.refusal(*found)


def require_keys(loaded: LoadedPipeline, plans: Iterable[TablePlan]) -> None:
    """Refuse tables without a key where their rows could not be told apart."""
    why = needs_keys(loaded)
    without = [plan.schema.table for plan in plans if not plan.schema.has_key]
    if without and why:
        mode = loaded.model.sink.instead_of_keys
        raise UnsupportedTableError(
            "no primary key, and no unique key over NOT NULL columns, on "
            f"{', '.join(map(str, without))}",
            where="source",
            risk=f"{why}; changes would be lost or doubled",
            remedy="add a primary key (ALTER TABLE ... ADD PRIMARY KEY), or leave them out, in the "
            f"file under source: {exclude_line(without)}{f'; or {mode}' if mode else ''}",
        )


def needs_keys(loaded: LoadedPipeline) -> str:
    """Return why a pipeline copies no table without a key; empty if it does."""
    if loaded.model.topology is not None:
        return "in a topology rows of two nodes could not be told apart"
    if not loaded.model.sink.abilities.takes_tables_without_key:
        return "the sink, as the file has it, cannot tell rows apart without a key"
    if loaded.model.stream.starts_at:
        return "rows that the sink lacks could not be told from those that it has"
    return ""


def _reserved_patterns(patterns: Sequence[TablePattern], catalogue: Catalogue) -> Iterator[Found]:
    """Yield patterns that name a reserved database, whose tables are never copied."""
    for number, pattern in enumerate(patterns):
        database = pattern.database
        holder = catalogue.reserved_for(database.text) if database.is_exact else ""
        if holder:
            what = f"the database {pattern.database} belongs to {holder}, and is never copied"
            yield ("source", "tables", number), what, "leave it out"


def _reserved_targets(
    loaded: LoadedPipeline, plans: Sequence[TablePlan], sink: Sink
) -> Iterator[Found]:
    """Yield tables whose target is in a reserved database, or has a name that no table has."""
    for plan in plans:
        if wrong := _wrong_name(plan.sink_table):
            yield (
                ("sink", "route"),
                f"{plan.schema.table} goes to {plan.sink_table}: {wrong}",
                "correct the route, or route that table by its own name",
            )
            continue
        holder = sink.reserved_for(plan.sink_table.database)
        if holder:
            yield (
                ("sink", "route") if loaded.model.sink.route else ("sink",),
                f"{plan.schema.table} goes to {plan.sink_table}, a database of {holder}",
                "route it to a database of its own",
            )


def _wrong_name(target: TableId) -> str:
    """Return why no server has a table of this name, empty if one may."""
    for name in (target.database, target.table):
        if not name:
            return "a name is empty"
        if len(name) > MAX_NAME:
            return f"a name has more than {MAX_NAME} characters"
        if name.endswith(" "):
            return "a name ends with a blank"
    return ""


def _unmatched_patterns(
    patterns: Sequence[TablePattern],
    facts: Sequence[TableFacts],
    base: Sequence[TableFacts],
    *,
    fold: bool,
    names: Callable[[], list[str]],
) -> Iterator[Found | WaitingPattern]:
    """Yield the patterns that pick no base table; `names` are the tables that the account sees."""
    for number, pattern in enumerate(patterns):
        if any(pattern.matches(fact.table, ignore_case=fold) for fact in base):
            continue
        other = next((f for f in facts if pattern.matches(f.table, ignore_case=fold)), None)
        path: Path = ("source", "tables", number)
        if other is not None:
            kind = other.kind.value.lower()
            yield path, f"{other.table} is not a base table but a {kind}", "leave it out"
        elif pattern.is_exact:
            what = f"table {pattern} does not exist, or the account may not see it"
            yield path, what, _near(pattern, names())
        else:
            yield WaitingPattern("source.tables", str(pattern), _near(pattern, names()))


def _unmatched_routes(
    loaded: LoadedPipeline, base: Sequence[TableFacts], *, fold: bool
) -> Iterator[Found | WaitingPattern]:
    """Yield the routes that fit none of the picked tables."""
    for source, target in loaded.model.sink.route.items():
        route = Route.parse(source, target)
        if any(route.target_of(fact.table, ignore_case=fold) for fact in base):
            continue
        fix = "correct it, remove it, or add its tables to source.tables"
        if route.source.is_exact:
            what = f"the route {source!r} fits none of the pipeline's tables"
            yield ("sink", "route", source), what, fix
        else:
            yield WaitingPattern("sink.route", source, fix)


def _unmatched_settings(
    loaded: LoadedPipeline, base: Sequence[TableFacts], *, fold: bool
) -> Iterator[Found | WaitingPattern]:
    """Yield the settings of tables that are none's: patterns, and names in another case."""
    model, tables = loaded.model, [fact.table for fact in base]
    for name in model.tables:
        pattern = TablePattern.parse(name)
        fits = any(pattern.matches(table, ignore_case=fold) for table in tables)
        if not pattern.is_exact and not fits:
            fix = "correct it, remove it, or add its tables to source.tables"
            yield WaitingPattern("tables", name, fix)
    if fold:
        return
    named: Sequence[tuple[Path, Iterable[str]]] = (
        (("snapshot", "tables"), model.snapshot.tables),
        (("backfill",), model.backfill),
        (("tables",), model.tables),
    )
    for path, names in named:
        for name, near in mistyped(names, tables):
            what = f"there is no table {name}, and the source tells upper and lower case apart"
            yield (*path, name), what, f"did you mean {in_file(near)}?"


def _as_found(loaded: LoadedPipeline, one: Found | WaitingPattern) -> Found:
    """Return the problem for a pattern or route that fits no table."""
    if not isinstance(one, WaitingPattern):
        return one
    if one.where == "sink.route":
        what = f"the route {one.pattern!r} fits none of the pipeline's tables"
        return ("sink", "route", one.pattern), what, one.fix
    if one.where == "tables":
        what = f"{one.pattern!r} fits none of the pipeline's tables"
        return ("tables", one.pattern), what, one.fix
    patterns = [str(pattern) for pattern in loaded.model.source.patterns]
    what = f"no table fits {one.pattern}, or the account may not see it"
    fix, edge = one.fix, loaded.model.edge
    if edge is not None:
        fix += (
            f"; if the tables come from {edge.dst_node}, `run` the edge from there first, and then "
            "this one with --seeded-from its file"
        )
    return ("source", "tables", patterns.index(one.pattern)), what, fix


def _near(pattern: TablePattern, names: Sequence[str]) -> str:
    """Suggest the name that a pattern resembles."""
    near = difflib.get_close_matches(str(pattern), names, n=1, cutoff=0.7)
    return f"did you mean {near[0]}?" if near else "correct the name, or grant SELECT on it"


def shared_targets(
    loaded: LoadedPipeline, plans: Sequence[TablePlan]
) -> Iterator[tuple[TableId, Found]]:
    """Yield each table that cannot share its sink table with an earlier one, with the problem."""
    path: Path = ("sink", "route") if loaded.model.sink.route else ("sink",)
    for clash in clashes(map(routed, plans)):
        yield clash.table, (path, clash.what, clash.fix)


def routed(plan: TablePlan) -> Routed:
    """Return where a plan's rows go, and how they look there."""
    return Routed(plan.schema.table, plan.sink_table, plan.shape)


def _schema_named(name: str, plans: Sequence[TablePlan], *, fold: bool) -> TableSchema | None:
    """Return the definition of the table that a name is of; None if there is none."""
    pattern = TablePattern.parse(name)
    schemas = (plan.schema for plan in plans)
    return next((each for each in schemas if pattern.matches(each.table, ignore_case=fold)), None)


def _wrong_keys(
    loaded: LoadedPipeline, plans: Sequence[TablePlan], *, fold: bool
) -> Iterator[Found]:
    """Yield tables whose configured split key is not their key."""
    for name, settings in loaded.model.snapshot.tables.items():
        schema = _schema_named(name, plans, fold=fold)
        if schema is None or settings.key is None or settings.key == schema.primary_key:
            continue
        yield (
            ("snapshot", "tables", name, "key"),
            f"the key of {name} is {list(schema.primary_key)}; splitting by another key "
            "is not in this release",
            f"write key: [{', '.join(schema.primary_key)}], or leave it out",
        )
