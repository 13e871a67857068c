"""Preflight of the source's tables: can each be copied, split, decoded and kept in step."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from airflow_cdc_provider.columns.source_port import PreflightQuestion
from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.findings import Finding, Level
from airflow_cdc_provider.core.identifiers import (
    TableId,
    quote_identifier,
    quote_table,
    table_option,
)
from airflow_cdc_provider.core.keys import bounding, comparable
from airflow_cdc_provider.core.table_facts import TableFacts, TableKind
from airflow_cdc_provider.core.table_picks import exclude_line, in_file
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.systems.mysql.dialect.column_types import require_known
from airflow_cdc_provider.systems.mysql.dialect.create_statement import parse_keys
from airflow_cdc_provider.systems.mysql.preflight.codes import Code
from airflow_cdc_provider.systems.mysql.preflight.foreign_keys import ForeignKey
from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities

_MANY_ROWS = 5_000_000
_ENGINES = {"InnoDB", "ROCKSDB"}
_MIGRATION = re.compile(r"_(.+)_(?:gho|ghc|del|new|old)")


def table_findings(
    capabilities: Capabilities,
    schemas: Sequence[TableSchema],
    keys: Sequence[ForeignKey],
    estimates: dict[TableId, int],
    question: PreflightQuestion,
) -> Iterator[Finding]:
    """Yield the findings about the source's tables: engine, key, types and cascades."""
    keyless = [schema.table for schema in schemas if not schema.has_key]
    # a stream stops one table and lets the others flow, so each has a finding of its own
    for tables in [[table] for table in keyless] if question.is_snapshot_done else [keyless]:
        yield from _keyless(tables, question)
    for schema in schemas:
        yield from _engine(schema)
        yield from _key(schema, estimates.get(schema.table, 0))
        yield from _types(schema)
    if not capabilities.logs_cascades:
        yield from _cascades(keys)


def left_out_findings(facts: Iterable[TableFacts]) -> Iterator[Finding]:
    """Yield findings for views and the like that a pattern picks, but that are not copied."""
    for fact in facts:
        if fact.kind is TableKind.BASE:
            continue
        history = fact.kind is TableKind.VERSIONED
        yield Finding(
            Code.TABLE_KIND,
            Level.BLOCK if history else Level.INFO,
            str(fact.table),
            "it has system versioning" if history else f"it is a {fact.kind.lower()}",
            "a base table",
            "the log shows a history row like a new row of the same key"
            if history
            else "only tables have rows in the log; it is left out",
            f"put {in_file(fact.table)} into source.exclude",
            only=str(fact.table) if history else "",
        )


def partition_findings(facts: Iterable[TableFacts]) -> Iterator[Finding]:
    """Yield findings for partitioned tables, whose copies have no partitions."""
    for fact in facts:
        if fact.partitioned and fact.kind is TableKind.BASE:
            yield Finding(
                Code.TABLE_PARTITIONS,
                Level.WARN,
                str(fact.table),
                "it is partitioned",
                why="rows are copied, partitions are not: a table that the pipeline creates at the "
                "sink has none, and partitions that are dropped or truncated later stop the stream",
                fix="create the sink's table yourself before the first run if it needs partitions",
            )


def migration_findings(tables: Iterable[TableId]) -> Iterator[Finding]:
    """Yield findings for tables that look like work tables of an online schema change."""
    everything = set(tables)
    for table in sorted(everything):
        match = _MIGRATION.fullmatch(table.table)
        if match is None or TableId(table.database, match[1]) not in everything:
            continue
        yield Finding(
            Code.TABLE_MIGRATION,
            Level.WARN,
            str(table),
            f"looks like a work table of an online change of {match[1]}",
            "tables that stay",
            "such a tool ends by renaming and dropping tables, which stops the stream; it copies "
            "the table's rows a second time until then",
            f"put {in_file(table)} into source.exclude, and change definitions while the pipeline "
            "rests",
        )


def _engine(schema: TableSchema) -> Iterator[Finding]:
    """Yield a finding if a table's engine has no transactions."""
    if schema.engine in _ENGINES:
        return
    yield Finding(
        Code.TABLE_ENGINE,
        Level.BLOCK,
        str(schema.table),
        f"ENGINE = {schema.engine}",
        "ENGINE = InnoDB",
        "without transactions a read is not a state the table ever had",
        f"ALTER TABLE {quote_table(schema.table)} ENGINE = InnoDB;",
        only=str(schema.table),
    )


def _keyless(tables: Sequence[TableId], question: PreflightQuestion) -> Iterator[Finding]:
    """Yield one finding about these tables without a key, with statements that add one."""
    if not tables:
        return
    alters = " ".join(
        f"ALTER TABLE {quote_table(table)} ADD COLUMN cdc_id BIGINT UNSIGNED NOT NULL "
        "AUTO_INCREMENT PRIMARY KEY;"
        for table in tables
    )
    if question.is_planned:
        named = " ".join(map(table_option, tables))
        alters += (
            " A table that is read already stops at this statement, and its error says how it "
            f"begins again: by `reset` with {named}, once the snapshot is done."
        )
    searches = (
        "an update or a delete makes the sink read its whole table, unless an index of it helps; "
        if question.finds_rows
        else ""
    )
    why = (
        f"each is read as one split, at a moment when nobody writes to it; {searches}and a part of "
        "it cannot be read again"
    )
    if needs_keys := question.needs_keys:
        why = f"{needs_keys}: changes would be lost or doubled"
    fix = f"{alters} Or leave them out, in the file under source: {exclude_line(tables)}"
    if needs_keys and question.instead_of_keys:
        fix += f"; or {question.instead_of_keys}"
    yield Finding(
        Code.TABLE_PRIMARY_KEY,
        Level.BLOCK if needs_keys else Level.WARN,
        ", ".join(map(str, tables)),
        "no primary key, and no unique key over NOT NULL columns",
        "a primary key, or a unique key of whole columns that are all NOT NULL",
        why,
        fix,
        only=str(tables[0]) if len(tables) == 1 else "",
    )


def _key(schema: TableSchema, estimate: int) -> Iterator[Finding]:
    """Yield findings about a table's key: generated, unsplittable or not comparable."""
    subject = str(schema.table)
    if not schema.primary_key:
        return
    names = {column.name for column in schema.columns}
    generated = [
        name for name in schema.primary_key if name not in names or schema.column(name).generated
    ]
    shown = f"unique key {schema.key_name}" if schema.key_name else "the primary key"
    if generated:
        yield Finding(
            Code.TABLE_GENERATED_KEY,
            Level.BLOCK,
            subject,
            f"{shown} holds generated columns: {', '.join(generated)}",
            "a key of stored columns",
            "generated columns are computed by the sink, so they cannot address its rows",
            "give the table a primary key of ordinary columns",
            only=subject,
        )
        return
    if _has_period(schema):
        yield Finding(
            Code.TABLE_PERIOD_KEY,
            Level.BLOCK,
            subject,
            f"{shown} is WITHOUT OVERLAPS",
            "a primary key, or a unique key of whole columns that are all NOT NULL",
            "it is about periods: a sink has no such key to tell the rows apart by",
            f"give the table a primary key, or leave it out: {exclude_line([schema.table])}",
            only=subject,
        )
        return
    kinds = schema.key_kinds
    if not bounding(kinds):
        many = estimate > _MANY_ROWS
        yield Finding(
            Code.TABLE_UNSPLIT,
            Level.WARN if many else Level.INFO,
            subject,
            f"its key's first column cannot bound a range; about {estimate} rows are read as one "
            "split",
            why="the split has to fit in a reader's memory" if many else "",
            fix="raise snapshot.max_split_mb, or let its key begin with an integer, "
            "decimal, temporal, text or binary column"
            if many
            else "",
        )
    elif not comparable(kinds):
        pairs = zip(schema.primary_key, kinds, strict=True)
        uncompared = ", ".join(name for name, kind in pairs if not kind.comparable)
        yield Finding(
            Code.TABLE_TEXT_KEY,
            Level.INFO,
            subject,
            f"key column {uncompared} cannot be compared in code",
            why="it has a collation, or a type that is ordered by the server alone: changes since "
            "the first split's low watermark are applied again by the stream, which is harmless",
        )


def _has_period(schema: TableSchema) -> bool:
    """Tell whether the unique key in the place of a primary one is about periods."""
    if not schema.key_name or not schema.create_statement:
        return False
    return any(
        key.name == schema.key_name and any(token.is_word("OVERLAPS") for token in key.tokens)
        for key in parse_keys(schema.create_statement)
    )


def _types(schema: TableSchema) -> Iterator[Finding]:
    """Yield findings for columns whose types cannot be copied."""
    for column in schema.copied_columns:
        try:
            require_known(column.type)
        except CdcError as error:
            yield Finding(
                Code.TABLE_TYPE,
                Level.BLOCK,
                str(schema.table),
                f"column {column.name}: {error.what}",
                "a type of the value model",
                error.risk,
                f"put {in_file(schema.table)} into source.exclude",
                only=str(schema.table),
            )


def _cascades(keys: Sequence[ForeignKey]) -> Iterator[Finding]:
    """Yield findings for foreign keys whose cascades the server does not log."""
    for key in keys:
        if not key.cascades:
            continue
        columns = ", ".join(map(quote_identifier, key.columns))
        parents = ", ".join(map(quote_identifier, key.referenced_columns))
        yield Finding(
            Code.TABLE_CASCADE,
            Level.BLOCK,
            str(key.table),
            f"foreign key {key.name}: ON DELETE {key.on_delete}, ON UPDATE {key.on_update}",
            "NO ACTION or RESTRICT, or a server that logs what cascades change (MySQL 9.6 or "
            "later with innodb_native_foreign_keys = OFF)",
            f"rows of {key.table} that change with a row of {key.referenced} are not in the log, "
            "so the sink would keep them as they were",
            f"ALTER TABLE {quote_table(key.table)} DROP FOREIGN KEY {quote_identifier(key.name)}, "
            f"ADD FOREIGN KEY ({columns}) REFERENCES {quote_table(key.referenced)} ({parents});",
        )
