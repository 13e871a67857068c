"""The reference page and the JSON schema of the pipeline file, made from the model.

`python -m airflow_cdc_provider.pipeline.file.reference` writes both; a test fails if they are
stale.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from airflow_cdc_provider.pipeline.file.model import PipelineFile
from airflow_cdc_provider.pipeline.file.sections import VARIANTS, variants_of

Schema = dict[str, Any]
FOLDER = Path(__file__).parents[2] / "docs"
PAGE = FOLDER / "pipeline_file.md"
SCHEMA = FOLDER / "pipeline_file.schema.json"

_OPENING = """\
# The pipeline file

One YAML file is one pipeline: one source, one sink, a set of tables, and how they are kept in
step. Unknown keys are errors, and so is anything this release does not do: a setting is obeyed or
refused with its line and the fix, never ignored. `pipeline_file.schema.json` beside this page is
the same as a JSON schema, for editors.

The smallest useful file:

```yaml
# yaml-language-server: $schema=pipeline_file.schema.json
pipeline: shop_to_dr
source:
  dsn_env: SHOP_DSN
  tables: ["shop.*"]
sink:
  dsn_env: DR_DSN
  route: {"shop.*": "dr_shop.*"}
```

Check it with `python -m airflow_cdc_provider check FILE`.

## Changing the file

A plan is made once, and rows are in the sink by it. Every start, of `check`, `plan`, `run` and
`verify` as of each Airflow task, compares the file with it:

| what changed | what happens |
|---|---|
| `stream`, `spark`, `state`, `server_id`, sizes and connections of `snapshot` | obeyed from the \
next start on; `split_rows` for tables that are not planned yet |
| a table picked anew | added by the next `run`, as `add` does it: the stream follows it, its rows \
are read beside, and the other tables are not read again |
| a table taken out of `tables` or put into `exclude` | removed by the next `run`, as `remove` \
does it: its rows at the sink stay. Until the hand-off it is refused with its line until \
`remove` is called for it; so is a file that picks none of the plan's tables |
| `sink.route` of a copied table | refused with its line, what it was and what it is, until \
`reset --table` is called for it: it alone is read again, into the new table |
| `tables` of a copied table: its rows and columns | refused with its line until `reset --table` \
is called for it: it alone is read again, as the file says then |
| `source.zero_dates`, `topology`; until the hand-off `snapshot.backfill` | refused with its line |
| the server behind `sink` | refused, unless the new one's ledger holds the plan, as a replica's \
does |
| the server behind `source` | refused, unless its history contains what was read; planned anew \
if nothing was |
| a new table at the source that fits a pattern which was there all along | as `source.new_tables` \
says: added, or told by `check`, `run`, `show`, `status` and `verify` until `add` is called |

The way past a refusal is `reset`: the next run reads all tables again, as the file says then.
Tables of the sink that are in no plan any more keep their rows. What a run adds and removes is
written as a line each, and as an event.

`new_tables: add` is the default, because a pattern means all tables that fit it, and a table that
is not copied is missed when it is too late. They are looked for at each start and, beside a
continuous stream, as soon as the log tells of one, and besides every minute (in Airflow every
`new_tables_s` seconds); what a table got before the stream took it up is read like any other row.
One that cannot be copied as it is, for want of a key or because its target holds rows, is told and
stops nothing, and so is one that has gone again by then. The copies of a table that
pt-online-schema-change and gh-ost work on (`_orders_new`, `_orders_gho` and the like) are told and
never added. A pattern, its route and its section of `tables` may fit no table yet: `check` warns of
it. Under `new_tables: tell`, and where the file picks no table at all, that is refused.
[Names of tables](names.md) says how names and patterns are written.

## Server ids

A server sends its log to one reader for each id and throws the older one out. Leave `server_id`
out, and each pipeline has ids of its own: they follow from its name and from `conn_id` or
`dsn_env`, lie between 1000000000 and 2100000000, and are the same in each run. Before, a file
without the key had 5400-5499: a stream of that time goes on with them until it is started again,
and the ids are no part of the plan, so nothing is refused.

Where ids are written, `check` refuses a pipeline without a plan if another file of its folder names
the same source and has an id in common, or if a reader with such an id is connected. A pipeline
that has a plan is only warned. Files that name different sources are not compared: there the server
is asked, by `SHOW REPLICAS` and its own `server_id`. An account that may not ask (MariaDB without
REPLICATION MASTER ADMIN) is told that this was not looked at.

This page is generated from the model in `airflow_cdc_provider/pipeline/file/model.py` and from the
sections in `airflow_cdc_provider/systems/*/file.py`.
"""


def json_schema() -> str:
    """Return the JSON schema of the pipeline file."""
    schema = PipelineFile.model_json_schema()
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def reference_page() -> str:
    """Return the reference page of the pipeline file in Markdown."""
    schema = PipelineFile.model_json_schema()
    return "\n".join([_OPENING, *_section(PipelineFile, "", schema, schema["$defs"])]) + "\n"


def _section(
    model: type[BaseModel], prefix: str, schema: Schema, models: Mapping[str, Schema]
) -> Iterator[str]:
    """Yield the page's parts for one section and those below it."""
    yield f"## {f'`{prefix}`' if prefix else 'Top level'}\n"
    if prefix:
        yield f"{_meaning(model)}\n"
    below: list[tuple[FieldInfo, str]] = []
    yield from _table(model, schema)
    for key, field in model.model_fields.items():
        name = f"{prefix}.{key}" if prefix else key
        if variants_of(field.annotation):
            below.append((field, f'{name}."database.table"' if _is_mapping(field) else name))
    for field, name in below:
        if name in VARIANTS:
            yield from _by_type(field, name, models)
        else:
            (section,) = variants_of(field.annotation)
            yield from _section(section, name, models[section.__name__], models)


def _by_type(field: FieldInfo, name: str, models: Mapping[str, Schema]) -> Iterator[str]:
    """Yield the page's parts for a section whose keys depend on its `type`."""
    yield f"## `{name}`\n"
    yield f"{field.description} Its `type` says which keys it has.\n"
    for kind, section in VARIANTS[name].items():
        yield f"### `{name}`, `type: {kind}`\n"
        yield f"{_meaning(section)}\n"
        yield from _table(section, models[section.__name__])


def _meaning(model: type[BaseModel]) -> str:
    """Return what a section is, by its model's docstring."""
    return (model.__doc__ or "").strip()


def _table(model: type[BaseModel], schema: Schema) -> Iterator[str]:
    """Yield the lines of the table of a section's keys."""
    yield "| key | type | default | meaning |\n|---|---|---|---|"
    for key, field in model.model_fields.items():
        is_section = bool(variants_of(field.annotation))
        kind = "section" if is_section else _kind(schema["properties"][key])
        meaning = (field.description or "").replace("|", "\\|")
        yield f"| `{key}` | {kind} | {_default(field, is_section=is_section)} | {meaning} |"
    yield ""


def _kind(schema: dict[str, Any]) -> str:
    """Describe a key's type by its JSON schema."""
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "anyOf" in schema:
        return " or ".join(_kind(part) for part in schema["anyOf"] if part.get("type") != "null")
    kind = schema["type"]
    if kind == "array":
        return f"list of {_kind(schema['items'])}s"
    if kind == "object":
        return "mapping"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _default(field: FieldInfo, *, is_section: bool) -> str:
    """Return a key's default as Markdown; empty if it has none worth showing."""
    if field.is_required():
        return "required"
    if is_section or field.default_factory is not None or field.default in (None, ()):
        return ""
    return f"`{json.dumps(field.default)}`".replace('"', "")


def _is_mapping(field: FieldInfo) -> bool:
    """Tell whether a field is a mapping."""
    return getattr(field.annotation, "__origin__", None) is dict


def write() -> None:
    """Write the reference page and the JSON schema to their files."""
    FOLDER.mkdir(exist_ok=True)
    PAGE.write_text(reference_page(), encoding="utf-8")
    SCHEMA.write_text(json_schema(), encoding="utf-8")


if __name__ == "__main__":
    write()
