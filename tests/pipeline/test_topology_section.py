"""The section `topology`: what is read from it, and what is refused together with it, by line."""

from __future__ import annotations

import pytest

from airflow_cdc_provider.core.conflict_rules import ConflictRule
from airflow_cdc_provider.core.errors import PipelineFileError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.schema_changes import ChangeKind, Policy, SchemaPolicy
from airflow_cdc_provider.core.topology import Topology
from airflow_cdc_provider.pipeline.file.loader import parse_pipeline
from airflow_cdc_provider.pipeline.file.topology_rules import LEDGER_TABLES
from airflow_cdc_provider.pipeline.steps.jobs import stream_spec
from airflow_cdc_provider.systems.mysql.sink.ledger_schema import _TABLES

EDGE = """\
pipeline: there
source:
  dsn_env: BERLIN_DSN
  tables: ["shop.*"]
sink:
  dsn_env: PARIS_DSN
topology:
  name: shops
  src_node: berlin
  dst_node: paris
"""


def refused(text: str) -> str:
    with pytest.raises(PipelineFileError) as caught:
        parse_pipeline(text, "there.yaml")
    return caught.value.what


def test_a_file_without_a_topology_is_no_edge() -> None:
    text = EDGE.partition("topology:")[0]
    assert parse_pipeline(text).model.edge is None
    assert parse_pipeline(f"{text}topology: null\n").model.edge is None


def test_what_an_edge_leaves_out_has_its_default() -> None:
    edge = parse_pipeline(EDGE).model.edge
    assert edge == Topology("shops", "berlin", "paris", TableId("airflow_cdc", "shops"))


def test_an_edge_is_read_as_it_is_written() -> None:
    more = "  do_nodes: [berlin, rome]\n  ignore_nodes: [oslo]\n  marker: sync.marks\n"
    edge = parse_pipeline(EDGE + more + "  conflicts: null\n").model.edge
    assert edge == Topology(
        "shops",
        "berlin",
        "paris",
        TableId("sync", "marks"),
        do_nodes=("berlin", "rome"),
        ignore_nodes=("oslo",),
    )
    mesh = parse_pipeline(f"{EDGE}  shape: mesh\n  do_nodes: [berlin]\n").model.edge
    assert mesh is not None
    assert mesh.is_mesh


def test_one_node_may_be_that_where_definitions_are_changed() -> None:
    carried = ChangeKind.ADD_COLUMN, ChangeKind.MODIFY_COLUMN
    of_src, of_dst = (
        parse_pipeline(f"{EDGE}schema_changes: {{from_node: {node}}}\n").model.schema_policy
        for node in ("berlin", "paris")
    )
    assert {of_src.of(kind) for kind in carried} == {Policy.APPLY}
    assert {of_dst.of(kind) for kind in carried} == {Policy.STOP}
    assert of_src.of(ChangeKind.DROP_COLUMN) is Policy.STOP
    assert (of_src.from_node, of_dst.from_node) == ("berlin", "paris")


def test_where_definitions_are_changed_is_refused_where_it_says_nothing() -> None:
    of_rome = "schema_changes: {from_node: rome}\n"
    assert "rome is no node of this edge" in refused(EDGE + of_rome)
    assert "the file has no topology" in refused(EDGE.partition("topology:")[0] + of_rome)
    of_berlin = "schema_changes: {from_node: berlin}\n"
    assert "could not be settled alike" in refused(EDGE + _CONFLICTS + _WINNER + of_berlin)


def test_a_table_may_stop_alone_also_where_conflicts_are_settled() -> None:
    guarded = parse_pipeline(EDGE + _CONFLICTS + _WINNER).model
    assert guarded.edge is not None
    assert guarded.edge.winner == "berlin"
    assert stream_spec(guarded, 1).isolates_tables
    whole = parse_pipeline(EDGE + _CONFLICTS + _WINNER + "stream: {table_errors: stop}\n").model
    assert not stream_spec(whole, 1).isolates_tables


def test_each_table_has_its_rule_and_a_name_goes_before_patterns() -> None:
    tables = """\
    column: updated_at
    tables:
      shop.l*: {policy: priority, winner: paris}
      shop.lots: {policy: column, column: version}
      "shop.*s": {policy: priority}
"""
    edge = parse_pipeline(EDGE + _COLUMN + _WINNER + tables).model.edge
    assert edge is not None
    rules = {name: edge.rule_of(TableId("shop", name)) for name in ("a", "lots", "logs", "as")}
    assert rules == {
        "a": ConflictRule("berlin", "updated_at"),
        "lots": ConflictRule("berlin", "version"),
        "logs": ConflictRule("paris"),
        "as": ConflictRule("berlin"),
    }
    assert edge.settles == "the greater updated_at wins; own rules for 3 tables or patterns"
    assert Topology.from_json(edge.to_json()) == edge
    older = {key: value for key, value in edge.to_json().items() if key not in {"column", "rules"}}
    assert Topology.from_json(older).rule_of(TableId("shop", "lots")) == ConflictRule("berlin")


def test_a_conflict_may_stop_the_edge_in_all_tables_or_in_some() -> None:
    edge = parse_pipeline(EDGE + _STOP).model.edge
    assert edge is not None
    assert edge.is_guarded
    assert edge.rule_of(TableId("shop", "lots")).stops
    assert edge.settles == "a conflict stops the table"
    assert Topology.from_json(edge.to_json()) == edge
    assert parse_pipeline(EDGE + _STOP).model.isolates_tables
    tables = "    tables: {shop.lots: {policy: priority, winner: paris}}\n"
    some = parse_pipeline(EDGE + _STOP + tables).model.edge
    assert some is not None
    assert some.rule_of(TableId("shop", "lots")) == ConflictRule("paris")
    assert some.rule_of(TableId("shop", "a")).stops
    but_one = parse_pipeline(EDGE + _CONFLICTS + _WINNER + f"{_RULE}stop}}\n").model.edge
    assert but_one is not None
    assert but_one.rule_of(TableId("shop", "a")).stops
    assert but_one.rule_of(TableId("shop", "b")) == ConflictRule("berlin")


def test_a_table_that_is_changed_stops_as_nobody_changes_the_other_node_for_it() -> None:
    def policy(text: str) -> SchemaPolicy:
        return stream_spec(parse_pipeline(text).model, 1).schema_changes

    assert policy(EDGE.partition("topology:")[0]) == SchemaPolicy()
    for text in (EDGE, f"{EDGE}schema_changes: {{drop_column: stop}}\n"):
        found = policy(text)
        kinds = {*ChangeKind} - {ChangeKind.DROP_TABLE, ChangeKind.RENAME_TABLE}
        assert {found.of(kind) for kind in kinds} == {Policy.STOP}
        assert (found.drop_table, found.rename_table) == (Policy.IGNORE, Policy.APPLY)


def test_no_table_of_the_ledger_can_be_the_marker() -> None:
    assert set(_TABLES) <= LEDGER_TABLES


_DST = "  dst_node: paris\n"
_SINK = "  dsn_env: PARIS_DSN\n"
_LONG = "n" * 65
_CONFLICTS = "  conflicts:\n    policy: priority\n"
_STOP = "  conflicts:\n    policy: stop\n"
_WINNER = "    winner: berlin\n"
_COLUMN = "  conflicts:\n    policy: column\n"
_RULE = "    tables:\n      shop.a: {policy: "
_MARKS = "  marker: shop.marks\n"
WRONG = [
    ("  name: shops\n", "", 7, "'name' is missing"),
    ("  src_node: berlin\n", "", 7, "'src_node' is missing"),
    (_DST, f"{_DST}  nodes: [a]\n", 11, "unknown key 'nodes'"),
    ("shops", _LONG, 8, "up to 63 letters"),
    ("berlin", "berlin-1", 9, "cannot be a name"),
    ("berlin", "3", 9, "write text"),
    ("paris", "berlin", 10, "an edge joins two nodes"),
    ("paris", "Berlin", 10, "differ by case alone"),
    (_DST, f"{_DST}  ignore_nodes: [Paris]\n", 11, "differ by case alone"),
    (_DST, f"{_DST}  do_nodes: [a b]\n", 11, "cannot be a name"),
    (_DST, f"{_DST}  do_nodes: berlin\n", 11, "a list"),
    (_DST, f"{_DST}  do_nodes:\n    - rome\n    - rome\n", 13, "there twice"),
    (_DST, f"{_DST}  ignore_nodes:\n    - rome\n    - rome\n", 13, "there twice"),
    (_DST, f"{_DST}  do_nodes: [rome]\n  ignore_nodes: [rome]\n", 12, "is in do_nodes, too"),
    (_DST, f"{_DST}  do_nodes:\n    - berlin\n    - paris\n", 13, "its own changes"),
    (_DST, f"{_DST}  shape: mesh\n  do_nodes: [rome]\n", 12, "come over its own edge"),
    (_DST, f"{_DST}  shape: mesh\n  ignore_nodes: [berlin]\n", 12, "would bring nothing"),
    (_DST, f"{_DST}  shape: ring\n", 11, "'tree' or 'mesh'"),
    (_DST, f"{_DST}  marker: marks\n", 11, "'database.table'"),
    (_DST, f"{_DST}  marker: sync.*\n", 11, "not one table"),
    (_DST, f"{_DST}  marker: airflow_cdc.Stream\n", 11, "a table of the ledger"),
    ("name: shops", "name: stream", 8, "a table of the ledger"),
    (_DST, f"{_DST}{_MARKS}", 11, 'source.exclude: ["shop.marks"]'),
    (_SINK, f'{_SINK}  route: {{"shop.*": "airflow_cdc.*"}}\n', 7, "the topology's marker"),
    (_DST, f"{_DST}  conflicts:\n    policy: stop\n{_WINNER}", 13, "stop no node wins"),
    (_DST, f"{_DST}{_STOP}    column: at\n", 13, "looks at no column"),
    (_DST, f"{_DST}{_STOP}{_RULE}priority}}\n", 14, "'winner' is missing"),
    (_DST, f"{_DST}{_CONFLICTS}{_WINNER}{_RULE}stop, winner: berlin}}\n", 15, "no node wins"),
    (_DST, f"{_DST}  conflicts: {{policy: priority}}\n", 11, "'winner' is missing"),
    (_DST, f"{_DST}{_CONFLICTS}    winner: rome\n", 13, "no node of this edge"),
    (_DST, f"{_DST}{_CONFLICTS}{_WINNER}    column: at\n", 14, "looks at no column"),
    (_DST, f"{_DST}{_COLUMN}{_WINNER}", 12, "needs to know which"),
    (_DST, f"{_DST}{_CONFLICTS}{_WINNER}{_RULE}column}}\n", 15, "needs to know which"),
    (_DST, f"{_DST}{_CONFLICTS}{_WINNER}{_RULE}priority, winner: x}}\n", 15, "no node of this"),
    (_DST, f"{_DST}{_CONFLICTS}{_WINNER}{_RULE}priority, column: x}}\n", 15, "at no column"),
    (_DST, f"{_DST}{_CONFLICTS}{_WINNER}    tables: {{x: {{}}}}\n", 14, "'database.table'"),
    (_DST, f"{_DST}{_CONFLICTS}{_WINNER}  do_nodes: [berlin]\n", 14, "not brought"),
    (_DST, f"{_DST}{_CONFLICTS}{_WINNER}  ignore_nodes: [rome]\n", 14, "not brought"),
    (_SINK, "  type: changelog\n  path: /data\n", 6, "is no node"),
    (_SINK, f"{_SINK}  existing_rows: replace\n", 7, "destroys what was written"),
    (_SINK, f'{_SINK}  route: {{"shop*.a": "dr.a"}}\n', 7, "several tables go to one"),
    (_DST, f"{_DST}stream:\n  apply: merged\n", 12, "merged takes them apart"),
    (_DST, f"{_DST}stream:\n  writers: 4\n", 12, "write writers: 1"),
    (_DST, f"{_DST}snapshot: {{backfill: false}}\n", 11, "brings older changes once more"),
    (_SINK, f"{_SINK}  route: {{'shop./a(.)/': 'dr.b{{1}}'}}\n", 7, "is a regular expression"),
    (_DST, f"{_DST}tables:\n  shop.a:\n    where: id > 3\n", 13, "hold the same rows"),
    (_DST, f"{_DST}tables:\n  shop.a:\n    columns: {{exclude: [b]}}\n", 13, "hold the same rows"),
    (_DST, f"{_DST}tables:\n  shop.a:\n    columns: {{type: {{u: blob}}}}\n", 13, "the same rows"),
    (_DST, f"{_DST}tables:\n  shop.a:\n    deletes: soft\n", 13, "hold the same rows"),
    (_DST, f"{_DST}tables:\n  shop.a:\n    key: by_a\n", 13, "by the table's own key"),
    (_DST, f"{_DST}tables:\n  shop.a:\n    metadata: {{server: s}}\n", 13, "hold the same rows"),
    ('["shop.*"]', '["shop.*"]\n  zero_dates: "null"', 5, "NULL for each zero date"),
    ('["shop.*"]', '["shop.*"]\n  new_tables: add', 5, "adds no tables"),
    *(
        (_DST, f"{_DST}schema_changes:\n  {key}: {value}\n", 12, "write stop")
        for key, value in (("add_column", "apply"), ("drop_column", "ignore"), ("rows", "apply"))
    ),
]


@pytest.mark.parametrize(("right", "wrong", "line", "words"), WRONG)
def test_what_does_not_fit_a_topology_is_refused_with_its_line_and_the_fix(
    right: str, wrong: str, line: int, words: str
) -> None:
    what = refused(EDGE.replace(right, wrong, 1))
    assert words in what
    (said,) = (each for each in what.splitlines() if words in each)
    assert f"there.yaml:line {line}, " in said
    assert "Fix: " in said


def test_what_fits_a_topology_is_not_refused() -> None:
    parse_pipeline(EDGE.replace(_DST, f"{_DST}tables: {{shop.a: {{}}}}\n"))
    parse_pipeline(EDGE.replace('["shop.*"]', '["shop.*"]\n  exclude: [shop.marks]') + _MARKS)
    parse_pipeline(EDGE.replace(_SINK, f'{_SINK}  route: {{"shop.*": "dr.*"}}\n'))
    parse_pipeline(f"{EDGE}  ignore_nodes: [paris]\n")
    parse_pipeline(f"{EDGE}  marker: airflow_cdc.shops\nsnapshot: {{backfill: true}}\n")
