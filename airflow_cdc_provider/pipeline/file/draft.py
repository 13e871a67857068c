"""The text of a new pipeline file, with comments for the person who edits it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from airflow_cdc_provider.pipeline.file.model import Reference

_TEXT = """\
# Every key is explained on the page 'The pipeline file', docs/pipeline_file.md in the installed
# package airflow_cdc_provider. After an edit: `check` this file.
pipeline: {name}
source:
  {source}
  # database.table; * is any characters, and takes in tables that are created later
  tables:
{tables}
{exclude}sink:
  {sink}
  # Where tables go; without it each keeps its name. A * is what it was on the left.
{route}
stream:
  # continuous: goes on and on; bounded: each run catches up and ends
  mode: {mode}
# When a run of the DAG compares all rows: after_snapshot, always or never
verify: {verify}
# Where progress is remembered; without it, in a SQLite file: see that page
{state}
"""
_NO_ROUTE = '  # route: {"shop.*": "dr_shop.*"}'
_NO_STATE = {
    "dsn_env": "# state: {dsn_env: CDC_STATE_DSN}",
    "conn_id": "# state: {conn_id: cdc_state}",
}
"""By how the file names its servers."""
_EXCLUDE = """\
  # these have no primary key, and no unique key over NOT NULL columns in its place; take them out
  # of this list to have them: `check` says what that costs
  exclude:
{tables}
"""


@dataclass(frozen=True, slots=True)
class Draft:
    """The values that a new pipeline file gets."""

    name: str
    source: Reference
    sink: Reference
    tables: Sequence[str]
    exclude: Sequence[str]
    mode: str
    verify: str
    route: Mapping[str, str] = field(default_factory=dict)
    state: Reference | None = None

    def text(self) -> str:
        """Return the pipeline file's text, in YAML with comments."""
        exclude = _EXCLUDE.format(tables=_items(self.exclude)) if self.exclude else ""
        return _TEXT.format(
            name=self.name,
            source=_key_of(self.source),
            sink=_key_of(self.sink),
            tables=_items(self.tables),
            exclude=exclude,
            route=_route(self.route),
            mode=self.mode,
            verify=self.verify,
            state=self._state(),
        )

    def _state(self) -> str:
        """Return the `state` section as YAML; as a comment if the file names none."""
        if self.state is not None:
            return f"state:\n  {_key_of(self.state)}"
        return _NO_STATE["conn_id" if self.source.dsn_env is None else "dsn_env"]


def _items(texts: Sequence[str]) -> str:
    """Return texts as items of a YAML list."""
    return "\n".join(f"    - {_quoted(text)}" for text in texts)


def _route(entries: Mapping[str, str]) -> str:
    """Return the `route` section as YAML."""
    if not entries:
        return _NO_ROUTE
    lines = (f"    {_quoted(source)}: {_quoted(target)}" for source, target in entries.items())
    return "\n".join(("  route:", *lines))


def _key_of(reference: Reference) -> str:
    """Return the YAML line that names a server."""
    if reference.dsn_env is not None:
        return f"dsn_env: {_quoted(reference.dsn_env)}"
    return f"conn_id: {_quoted(str(reference.conn_id))}"


def _quoted(text: str) -> str:
    """Return a text in double quotes for YAML."""
    # a JSON string is a YAML string
    return json.dumps(text, ensure_ascii=False)
