"""Drafting a pipeline by a form: the tables of a source, the file, the grants, and its check.

Nothing is begun and nothing is kept. Servers are named by connections only. What is returned are
forms for JSON: no DSN is in them, and what a server says comes without the passwords in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, CdcError, RefusedError
from airflow_cdc_provider.core.findings import Finding, Level, PipelineCode
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.server_look import Part
from airflow_cdc_provider.core.table_patterns import TablePattern
from airflow_cdc_provider.core.wrong_value import WrongValueError
from airflow_cdc_provider.engine.scrubbing import Secrets
from airflow_cdc_provider.pipeline.connection_fields import endpoint_of
from airflow_cdc_provider.pipeline.connections import DsnOf
from airflow_cdc_provider.pipeline.file.draft import Draft
from airflow_cdc_provider.pipeline.file.loader import LoadedPipeline, parse_pipeline
from airflow_cdc_provider.pipeline.file.model import Reference
from airflow_cdc_provider.pipeline.run import open_to_look
from airflow_cdc_provider.pipeline.steps.checking import CheckReport, check
from airflow_cdc_provider.pipeline.steps.choosing import (
    Offered,
    SourceTables,
    choose,
    offered_tables,
    route,
)
from airflow_cdc_provider.systems.registry import look_at, rights_at

Form = dict[str, Any]
_NO_KEY = (
    "no primary key, and no unique key over NOT NULL columns; taken out of source.exclude it is "
    "copied as well, at a cost"
)
Answer = TypeVar("Answer")
DAG_FILE = """\
from airflow_cdc_provider.operators.dags import cdc_dags

cdc_dags("pipelines/", globals())
"""
"""What makes the DAGs of all pipeline files of a folder."""
_NOT_WRITTEN = Path("(new)")
"""The folder of a file that is not written: there is none of that name, so it has no neighbours."""


@dataclass(frozen=True, slots=True)
class Answers:
    """A person's answers in the form of a new pipeline; servers are connection ids."""

    name: str
    source: str
    sink: str
    tables: Sequence[str]
    route: Mapping[str, str]
    mode: str
    verify: str
    state: str = ""
    """Empty: the default, a SQLite file under Airflow's home."""
    exclude: Sequence[str] = ()

    @property
    def file_name(self) -> str:
        return f"{self.name}.yaml"

    def text(self) -> str:
        """Return the pipeline file's text."""
        draft = Draft(
            name=self.name,
            source=Reference(conn_id=self.source),
            sink=Reference(conn_id=self.sink),
            tables=self.tables,
            exclude=self.exclude,
            mode=self.mode,
            verify=self.verify,
            route=self.route,
            state=Reference(conn_id=self.state) if self.state else None,
        )
        return draft.text()

    def loaded(self) -> LoadedPipeline:
        """Return the pipeline file as loaded; refuse it with the wrong line."""
        return parse_pipeline(self.text(), _NOT_WRITTEN / self.file_name)


@dataclass(slots=True)
class Lookup:
    """Finds DSNs of connections, and hides their passwords in answers and errors."""

    dsn_of: DsnOf
    _dsns: list[str] = field(default_factory=list, repr=False)

    def __call__(self, reference: Reference) -> str | None:
        """Return the DSN that a reference names, and remember it to hide its password."""
        dsn = self.dsn_of(reference)
        self._dsns.append(dsn or "")
        return dsn

    def endpoint(self, conn_id: str) -> Endpoint:
        """Return the address of a connection's server; refuse if there is none."""
        dsn = self(Reference(conn_id=conn_id))
        if dsn is None:
            raise RefusedError(
                f"there is no connection {conn_id!r}",
                where="connections of Airflow",
                risk=NOTHING_CHANGED,
                remedy="add it to Airflow, or to the secrets backend that the API server asks",
            )
        return endpoint_of(conn_id, dsn, risk=NOTHING_CHANGED)

    def scrub(self, value: Any) -> Any:
        """Return a JSON value with the passwords hidden in its texts."""
        if isinstance(value, str):
            return Secrets.of_dsns(*self._dsns).scrub(value)
        if isinstance(value, Mapping):
            return {key: self.scrub(each) for key, each in value.items()}
        return [self.scrub(each) for each in value] if isinstance(value, list) else value

    @contextmanager
    def scrubbed_errors(self) -> Iterator[None]:
        """Hide passwords in errors that the block raises."""
        try:
            yield
        except CdcError as error:
            raise error.rewritten(self.scrub) from None


def tables_form(source: str, lookup: Lookup) -> Form:
    """Return the facts about a source and its tables, as JSON."""
    with lookup.scrubbed_errors():
        endpoint = lookup.endpoint(source)
        look = look_at(endpoint, Part.SOURCE)
        offered = offered_tables(endpoint)
    return {
        "facts": lookup.scrub(list(look.facts)),
        "names_fold_case": offered.names_fold_case,
        "tables": [_table_form(one) for one in offered.tables],
    }


def file_form(answers: Answers, lookup: Lookup) -> Form:
    """Return the drafted pipeline file as JSON: its text, picked tables and their targets."""
    _require_name(answers.name)
    with lookup.scrubbed_errors():
        offered = offered_tables(lookup.endpoint(answers.source))
        return _file_form(answers, offered)


def rights_form(conn_id: str, part: Part, databases: Sequence[str], lookup: Lookup) -> Form:
    """Return the GRANT statements that a connection's account needs, as JSON."""
    with lookup.scrubbed_errors():
        statements = rights_at(lookup.endpoint(conn_id), part, databases)
    return {"statements": list(statements)}


def check_form(answers: Answers, lookup: Lookup, in_use_by: Sequence[str] = ()) -> Form:
    """Return what `check` finds in the drafted pipeline file, as JSON.

    `in_use_by` are the pipelines of that name, in words. State and ledger are theirs, so nothing
    else can be checked under the name.
    """
    _require_name(answers.name)
    loaded = answers.loaded()
    if in_use_by:
        taken = CheckReport(answers.name, (), (_name_in_use(answers.name, in_use_by),))
        return {**taken.to_json(), "counts": dict(taken.counts)}
    with lookup.scrubbed_errors(), open_to_look(loaded, lookup, in_airflow=True) as run:
        report = check(run)
    form: Form = lookup.scrub({**report.to_json(), "counts": dict(report.counts)})
    return form


def _file_form(answers: Answers, offered: SourceTables) -> Form:
    """Draft the file from the answers and the source's tables."""
    choice = _answered("tables", lambda: choose(answers.tables, offered))
    routing = _answered("route", lambda: route(answers.route, choice))
    exclude = [str(TablePattern.of(table)) for table in choice.keyless]
    drafted = replace(answers, tables=choice.patterns, exclude=exclude)
    drafted.loaded()
    return {
        "file": f"pipelines/{drafted.file_name}",
        "text": drafted.text(),
        "patterns": list(choice.patterns),
        "exclude": exclude,
        "tables": [
            {"source": str(source), "sink": str(target)}
            for source, target in routing.targets.items()
        ],
        "databases": {"source": list(choice.databases), "sink": list(routing.databases)},
        "dag_file": DAG_FILE,
    }


def _answered(field_name: str, read: Callable[[], Answer]) -> Answer:
    """Return what `read` returns; a wrong value is refused by the name of its field."""
    try:
        return read()
    except WrongValueError as error:
        raise RefusedError(
            error.what, where=field_name, risk=NOTHING_CHANGED, remedy=error.fix
        ) from None


def _require_name(name: str) -> None:
    """Refuse a wrong name of a pipeline."""
    try:
        PipelineName(name)
    except ValueError as error:
        raise RefusedError(
            str(error), where="name", risk=NOTHING_CHANGED, remedy="give it another name"
        ) from None


def _name_in_use(name: str, in_use_by: Sequence[str]) -> Finding:
    """Return the finding that there is a pipeline of that name."""
    return Finding(
        PipelineCode.NAME_IN_USE,
        Level.BLOCK,
        name,
        f"the name is in use: {'; '.join(in_use_by)}",
        "a name of its own",
        "state and ledger are kept by name, so each of two pipelines would go on from the other's",
        "give it another name",
    )


def _table_form(one: Offered) -> Form:
    """Return one table of the source as JSON."""
    return {
        "table": str(TablePattern.of(one.table)),
        "database": one.table.database,
        "rows": one.estimated_rows,
        "bytes": one.estimated_bytes,
        "left_out": "" if one.has_key else _NO_KEY,
    }
