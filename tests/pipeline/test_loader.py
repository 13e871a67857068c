"""A wrong pipeline file is refused with the line and the fix, all problems at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cdc_provider.core.errors import PipelineFileError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.jobspec import ApplyMode, StreamMode
from airflow_cdc_provider.core.split_size import SplitSize
from airflow_cdc_provider.core.throttle import ThrottleLimits
from airflow_cdc_provider.pipeline.connections import EnvironmentDsns, resolve_servers
from airflow_cdc_provider.pipeline.file.loader import load_pipeline, parse_pipeline
from tests.pipeline.pipeline_files import FULL, SMALL


def refused(text: str) -> str:
    with pytest.raises(PipelineFileError) as caught:
        parse_pipeline(text, "shop.yaml")
    return caught.value.what


def test_the_file_of_the_design_is_read() -> None:
    model = parse_pipeline(FULL).model
    assert str(model.name) == "shop_to_dr"
    assert (model.server_ids.start, model.server_ids.stop) == (5400, 5500)
    assert model.snapshot.tables["shop.orders"].key == ("id",)
    assert (model.stream.stream_mode, model.stream.apply_mode) == (
        StreamMode.CONTINUOUS,
        ApplyMode.TRANSACTIONS,
    )
    assert model.picks(TableId("inventory", "parts"))
    assert not model.picks(TableId("inventory", "tmp_parts"))
    assert not model.picks(TableId("shop", "items"))


def test_what_is_left_out_has_its_default() -> None:
    model = parse_pipeline(SMALL).model
    assert (model.state, model.split_size.rows, model.stream.mode) == (
        None,
        50_000,
        "continuous",
    )


def test_splits_are_large_where_they_become_files_unless_the_file_says_otherwise() -> None:
    lake = (
        SMALL.replace("sink:\n  dsn_env: DR_DSN", "sink: {type: delta, path: /lake}")
        + "snapshot:\n"
    )
    paced = "  throttle: {rows_per_second: 5}\n"
    sizes = [
        parse_pipeline(text).model.split_size
        for text in (lake + "  backfill: true\n", lake + paced, lake + "  split_rows: 9\n", SMALL)
    ]
    assert sizes == [SplitSize(50_000, 24 << 20), SplitSize(), SplitSize(9), SplitSize()]
    small = parse_pipeline(lake + "  max_split_mb: 16\n").model.split_size
    assert small.bytes == 6 << 20  # of what the server stores: none is read twice for its size
    mirror = lake.replace("/lake}", "/lake, mode: mirror}") + "  backfill: true\n"
    assert parse_pipeline(mirror).model.split_size == SplitSize()


def test_a_file_without_types_is_of_what_it_was_before_there_were_any() -> None:
    text = SMALL.replace("DR_DSN", "DR_DSN\n  type: mysql")
    written = parse_pipeline(text.replace("SHOP_DSN", "SHOP_DSN\n  type: mysql")).model
    assert parse_pipeline(SMALL).model == written


def test_a_key_of_another_type_that_says_nothing_is_as_if_it_were_not_there() -> None:
    unused = "DR_DSN\n  path: null\n  format: null\n  include_query: false"
    assert parse_pipeline(SMALL.replace("DR_DSN", unused)).model == parse_pipeline(SMALL).model
    log = SMALL.replace("dsn_env: DR_DSN", _LOG)
    assert parse_pipeline(f"{log}  conn_id: null\n").model == parse_pipeline(log).model
    assert "has no path" in refused(SMALL.replace("DR_DSN", "DR_DSN\n  path: 0"))


_LOG = "type: changelog\n  path: /data/changes"
_TABLES = "type: delta\n  path: /data/lake"
_BUCKET = "type: changelog\n  path: s3://bucket/changes"
_LAKE = "type: iceberg\n  path: s3://bucket/lake"
_BEGINS = "stream: {start: latest"
_ENDS = "stream: {mode: snapshot_only}"
_TYPED = 'tables:\n  "shop.a": {columns: {type: '
_TWICE = "tables:\n  shop.a: {where: a = 1}\n  '`shop`.`a`': {where: a = 2}"
_MARKED = 'tables:\n  "shop.a": {'
_BACKFILL = 'backfill:\n  "shop.a": '
WRONG = [
    ("pipeline: shop", "pipeline: shop-to-dr", 1, "letters, digits"),
    ("pipeline: shop", "pipelin: shop", 1, "did you mean 'pipeline'?"),
    ("  dsn_env: SHOP_DSN\n", "", 2, "wanted one of conn_id and dsn_env, neither is there"),
    ("  dsn_env: SHOP_DSN", "  dsn_env: SHOP_DSN\n  conn_id: shop", 2, "both are there"),
    ("SHOP_DSN", "'mysql://u:planted@h/'", 3, "not the name of an environment variable"),
    ('["shop.*"]', "[]", 4, "the list is empty"),
    ('["shop.*"]', '["shop"]', 4, 'write "shop.*"'),
    ('["shop.*"]', "shop.*", 4, "a list"),
    ('["shop.*"]', '["shop.*"]\n  server_id: 9-5', 5, "smaller id first"),
    ('["shop.*"]', '["shop.*"]\n  server_id: 5400-5402', 5, "too few"),
    ('["shop.*"]', '["shop.a"]\n  exclude: ["*.a"]', 4, "also excluded"),
    ("DR_DSN", "DR_DSN\n  type: postgres", 7, "available are: mysql, changelog"),
    ("DR_DSN", 'DR_DSN\n  route: {"shop.a": "dr.*"}', 7, "stands for nothing"),
    ("DR_DSN", 'DR_DSN\n  route: {"shop": "dr"}', 7, "not 'database.table'"),
    ("DR_DSN", "SHOP_DSN", 5, "copied onto itself"),
    ("DR_DSN", "DR_DSN\nsnapshot: {split_rows: '5'}", 7, "a whole number"),
    ("DR_DSN", "DR_DSN\nsnapshot:\n  split_row: 5", 8, "did you mean 'split_rows'?"),
    ("DR_DSN", "DR_DSN\nsnapshot: {backfill: 1}", 7, "true or false"),
    ("DR_DSN", 'DR_DSN\nsnapshot: {tables: {"a.b": {}}}', 7, "not among the pipeline's tables"),
    ("DR_DSN", 'DR_DSN\nbackfill: {"a.b": {column: day}}', 7, "not among the pipeline's tables"),
    ("DR_DSN", 'DR_DSN\nbackfill: {"shop.*": {column: day}}', 7, "without *"),
    ("DR_DSN", f"DR_DSN\n{_BACKFILL}{{column: at, timezone: Europe/Berlni}}", 8, "mean Europe/B"),
    ("DR_DSN", f"DR_DSN\n{_BACKFILL}{{column: at, timezone: UTC, epoch: seconds}}", 8, "not both"),
    ("DR_DSN", f"DR_DSN\n{_BACKFILL}{{timezone: UTC}}", 8, "'column' is missing"),
    ("DR_DSN", "DR_DSN\nfreshness: {target: 15 minutes}", 7, "as in 15m"),
    ("DR_DSN", "DR_DSN\nfreshness: {target: 0s}", 7, "not a span of time"),
    ("DR_DSN", "DR_DSN\nfreshness: {target: 1.5h}", 7, "not a span of time"),
    ("DR_DSN", "DR_DSN\nfreshness: 15m", 7, "settings below it: target"),
    ("DR_DSN", "DR_DSN\nstream:\n  start: now", 8, "earliest, latest, or one of position"),
    ("DR_DSN", "DR_DSN\nstream:\n  start: {position: 4}", 8, "a file and offset"),
    ("DR_DSN", "DR_DSN\nstream:\n  start: {gtid: x, position: y}", 8, "one of position, gtid"),
    ("DR_DSN", "DR_DSN\nstream:\n  start: {timestamp: '2026-01-01'}", 8, "with its zone"),
    ("DR_DSN", f"DR_DSN\n{_BEGINS}, stop: consistent}}", 7, "of one position from the start"),
    ("DR_DSN", f"DR_DSN\n{_BEGINS}, mode: snapshot_only}}", 7, "nothing but the stream"),
    ("DR_DSN", f"DR_DSN\n  existing_rows: replace\n{_BEGINS}}}", 7, "write keep if they are"),
    ("DR_DSN", "DR_DSN\n  existing_rows: keep", 7, "none would be kept"),
    ("DR_DSN", f"DR_DSN\n{_BEGINS}}}\nverify: always", 8, "begin empty"),
    (
        "DR_DSN",
        f"DR_DSN\n{_BEGINS}}}\ntopology: {{name: t, src_node: a, dst_node: b}}",
        7,
        "an edge of a topology starts",
    ),
    ("dsn_env: DR_DSN", f"{_LOG}\n  existing_rows: keep", 8, "no rows of before"),
    ("DR_DSN", "DR_DSN\nstream:\n  stop: latest", 8, "mode: bounded"),
    ("DR_DSN", "DR_DSN\nstream:\n  stop: {position: 4}", 8, "a file and offset"),
    ("DR_DSN", "DR_DSN\nstream:\n  stop: {gtid: x, position: y}", 8, "one of position, gtid"),
    ("DR_DSN", "DR_DSN\nstream:\n  stop: {timestamp: '2026-01-01'}", 8, "with its zone"),
    ("DR_DSN", "DR_DSN\nstream:\n  stop: {timestamp: 2026-01-01 00:00:00}", 8, "no time zone"),
    ("DR_DSN", "DR_DSN\nstream: {mode: continuous, stop: consistent}", 7, "write mode: bounded"),
    ("DR_DSN", "DR_DSN\nstream: {mode: snapshot_only, stop: consistent}", 7, "does not go with"),
    ("DR_DSN", "DR_DSN\nstream:\n  stop: consistent\nverify: always", 9, "what changed since"),
    ("DR_DSN", f"DR_DSN\nstream: {{stop: consistent}}\n{_BACKFILL}{{column: at}}", 8, "goes on"),
    ('["shop.*"]', f'["shop.*"]\n  new_tables: add\n{_ENDS}', 5, "of a later position"),
    ("DR_DSN", "DR_DSN\nstream: {stop: consistent, table_errors: isolate}", 7, "left alone"),
    ("DR_DSN", f"DR_DSN\nsnapshot: {{backfill: false}}\n{_ENDS}", 7, "of no one position"),
    ("DR_DSN", f"DR_DSN\n{_ENDS}\ntopology: {{name: t, src_node: a, dst_node: b}}", 7, "an edge"),
    ("DR_DSN", "DR_DSN\nstream:\n  mode: fast", 8, "'continuous', 'bounded' or"),
    ("DR_DSN", "DR_DSN\nstream:\n  writers: 4", 8, "apply: merged"),
    ("DR_DSN", "DR_DSN\n  dsn_env: TWICE", 7, "there twice, first on line 6"),
    ("DR_DSN", "DR_DSN\n  type: changelog", 5, "'path' is missing"),
    ("dsn_env: DR_DSN", "type: iceberg\n  conn_id: x\n  path: /a", 5, "are of a place in S3"),
    ("dsn_env: DR_DSN", "type: delta\n  catalog: x\n  path: /a", 7, "delta has no catalog"),
    ("DR_DSN", "DR_DSN\n  path: /data", 7, "a sink of type mysql has no path"),
    ("DR_DSN", "DR_DSN\n  format: json", 7, "write type: changelog, or remove it"),
    ("DR_DSN", "DR_DSN\n  include_query: true", 7, "of type mysql has no include_query"),
    ("DR_DSN", "DR_DSN\n  rout: {}", 7, "did you mean 'route'?"),
    (
        "DR_DSN",
        "DR_DSN\n  include_queries: true",
        7,
        "mean 'include_query', which type: changelog has?",
    ),
    ("DR_DSN", "DR_DSN\n  type: [mysql]", 7, 'found ["mysql"]'),
    ('["shop.*"]', '["shop.*"]\n  type: postgres', 5, "sources of type 'postgres' are not in"),
    ('["shop.*"]', '["shop.*"]\n  type: oracle', 5, "write mysql"),
    ('["shop.*"]', '["shop.*"]\n  path: /data', 5, "unknown key 'path'"),
    ("dsn_env: DR_DSN", f"{_LOG}\n  pth: /x", 8, "did you mean 'path'?"),
    ("dsn_env: DR_DSN", f"{_LOG}\n  format: csv", 8, "write json or parquet"),
    ("dsn_env: DR_DSN", f"{_LOG}\n  types: native", 5, "only files in Parquet have types"),
    ("dsn_env: DR_DSN", f"{_LOG}\n  existing_rows: replace", 8, "replaces no rows"),
    ("dsn_env: DR_DSN", "type: changelog\n  path: data", 7, "no absolute path"),
    ("dsn_env: DR_DSN", _LAKE, 5, "in a store need a catalog"),
    ("dsn_env: DR_DSN", f"{_LAKE}\n  catalog: {{type: sql}}", 8, "neither conn_id nor dsn_env"),
    ("dsn_env: DR_DSN", f"{_LAKE}\n  catalog: {{type: hive}}", 8, "write sql, rest or glue"),
    (
        "dsn_env: DR_DSN",
        f"{_LAKE}\n  catalog: {{type: glue, dsn_env: A}}",
        8,
        "the key of the store",
    ),
    (
        "dsn_env: DR_DSN",
        f"{_LAKE}\n  catalog: {{type: rest, dsn_env: A, conn_id: b}}",
        8,
        "both are there",
    ),
    (
        "dsn_env: DR_DSN",
        f"{_LAKE}\n  catalog: {{type: rest, dsn_env: A, properties: {{token: planted}}}}",
        8,
        "token is no setting of a catalog of type rest",
    ),
    (
        "dsn_env: DR_DSN",
        f"{_LAKE}\n  catalog: {{type: sql, dsn_env: A, view: '{{table}}_now'}}",
        8,
        "of type sql has no views",
    ),
    *(
        (
            "dsn_env: DR_DSN",
            f"{_LAKE}\n  catalog: {{type: rest, dsn_env: A, view: '{name}'}}",
            8,
            "does not name a view of each table",
        )
        for name in ("now", "{table}", "{table}_{table}", "{table}_{name}")
    ),
    (
        "dsn_env: DR_DSN",
        "type: iceberg\n  path: /data/lake\n  catalog: {type: glue}",
        5,
        "Glue is a catalog of tables in S3",
    ),
    ("dsn_env: DR_DSN", "type: iceberg\n  path: az://b/data", 5, "reads no az://"),
    ("dsn_env: DR_DSN", "type: changelog\n  path: s3a://b/data", 7, "begins with s3a://"),
    ("dsn_env: DR_DSN", "type: changelog\n  path: s3://k:planted@b/d", 7, "no URI of a bucket"),
    ("dsn_env: DR_DSN", "type: changelog\n  path: s3://b/../data", 7, "no URI of a bucket"),
    ("dsn_env: DR_DSN", f"{_LOG}\n  dsn_env: PLANTED", 5, "dsn_env are of a place in S3"),
    ("dsn_env: DR_DSN", f"{_BUCKET}\n  dsn_env: A\n  conn_id: b", 5, "both are there"),
    ("dsn_env: DR_DSN", f"{_LOG}\nsnapshot: {{backfill: false}}", 8, "would hold them twice"),
    ("dsn_env: DR_DSN", f"{_LOG}\nstream: {{apply: merged}}", 8, "holds every change"),
    ("dsn_env: DR_DSN", f"{_LOG}\n{_BACKFILL}{{column: at}}", 8, "takes no rows again"),
    ("dsn_env: DR_DSN", f"{_LOG}\n{_TYPED}{{a: blob}}}}}}", 9, "changelog have no types to name"),
    (
        "DR_DSN",
        f"DR_DSN\n{_TYPED}{{a: blob}}, exclude: [a]}}}}",
        8,
        "given a type, and is not copied",
    ),
    ("DR_DSN", f"DR_DSN\n{_TYPED}{{a: ''}}}}}}", 8, "at least 1 character"),
    ('["shop.*"]', "['/shop(/.*']", 4, "no regular expression"),
    ('["shop.*"]', "['shop.`a']", 4, "a name with a dot in it is written in backticks"),
    ("DR_DSN", "DR_DSN\n  route: {shop.a: x.y, '`shop`.a': x.z}", 7, "`shop`.a are the same"),
    ("DR_DSN", f"DR_DSN\n{_TWICE}", 9, "`shop`.`a` are the same"),
    ("DR_DSN", "DR_DSN\n  route: {'shop./a(.)/': 'x.y{2}'}", 7, "stands for nothing"),
    ("DR_DSN", "DR_DSN\ntables:\n  '`shop`.a':\n    where: 3", 9, "where"),
    ("DR_DSN", "DR_DSN\nbackfill:\n  shop./a/:\n    column: at", 8, "not among the pipeline's"),
    ("dsn_env: DR_DSN", f"{_LOG}\n{_MARKED}deletes: soft}}", 9, "holds each change as an event"),
    ("dsn_env: DR_DSN", f"{_TABLES}\n{_MARKED}deletes: soft}}", 9, "or write mode: mirror"),
    (
        "dsn_env: DR_DSN",
        f"{_TABLES}\n{_MARKED}metadata: {{table: t}}}}",
        9,
        "a row for each change",
    ),
    (
        "dsn_env: DR_DSN",
        f"{_LOG}\n{_MARKED}metadata: {{server: s}}}}",
        9,
        "what it would say is in each event",
    ),
    ("DR_DSN", f"DR_DSN\n{_MARKED}deletes: never}}", 8, "write hard or soft"),
    ("DR_DSN", f"DR_DSN\n{_MARKED}key: [id]}}", 8, "as in key: uq_number"),
    ("DR_DSN", f"DR_DSN\n{_MARKED}key: ''}}", 8, "as in key: uq_number"),
    ("DR_DSN", f"DR_DSN\n{_MARKED}columns: {{key: id}}}}", 8, "columns"),
    ("DR_DSN", f"DR_DSN\n{_MARKED}metadata: {{deleted: d}}}}", 8, "deletes are hard"),
    ("DR_DSN", f"DR_DSN\n{_MARKED}metadata: {{operations: o}}}}", 8, "mean 'operation'?"),
    ("DR_DSN", f"DR_DSN\n{_MARKED}metadata: {{table: x, server: X}}}}", 8, "have the name x"),
    (
        "DR_DSN",
        f"DR_DSN\n{_MARKED}deletes: soft, columns: {{constants: {{_Deleted: 1}}}}}}",
        8,
        "and one that is copied or constant",
    ),
    ("pipeline: shop", "pipeline: [", 3, "not YAML"),
]


@pytest.mark.parametrize(("right", "wrong", "line", "words"), WRONG)
def test_a_wrong_file_is_refused_with_its_line_and_the_fix(
    right: str, wrong: str, line: int, words: str
) -> None:
    what = refused(SMALL.replace(right, wrong, 1))
    assert words in what
    assert f"shop.yaml:line {line}" in what
    assert "Fix: " in what
    assert "planted" not in what


FIXES = [
    ("pipeline: shop", "pipeline: 3", "write text, as in pipeline: shop_to_dr"),
    ("dsn_env: DR_DSN", "dsn_env: DR_DSN\n  type: oracle", "write mysql"),
    ("dsn_env: DR_DSN", "dsn_env: DR_DSN\nsnapshot:", "leave the key out for its defaults, or"),
    ("sink:\n  dsn_env: DR_DSN", "sink:", "as in sink: {dsn_env: DR_DSN}"),
    (
        "DR_DSN",
        "DR_DSN\nstream: {max_batch: {seconds: 0}}",
        "write a number above 0 and of at most 3600, as in seconds: 1.0",
    ),
    (
        "DR_DSN",
        "DR_DSN\nsnapshot: {split_rows: many}",
        "write a whole number of at least 1, without quotes, as in split_rows: 50000",
    ),
    ("DR_DSN", "DR_DSN\nstream: {mode: once}", "write continuous, bounded or snapshot_only"),
    ("  tables", "  zero_dates: keep\n  tables", 'write fail, "null" or text'),
    ('["shop.*"]', "[3]", "write text, as in tables: [shop.orders, inventory.*]"),
    ('["shop.*"]', "", "write a list, as in tables: [shop.orders, inventory.*]"),
    ("DR_DSN", "DR_DSN\nspark: {conf: {a: [1]}}", "as in conf: {spark.driver.memory: 2g}"),
]


@pytest.mark.parametrize(("right", "wrong", "fix"), FIXES)
def test_a_fix_says_what_to_write(right: str, wrong: str, fix: str) -> None:
    what = refused(SMALL.replace(right, wrong, 1))
    assert "has 1 problem" in what
    assert fix in what.partition("Fix: ")[2]


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "null"])
def test_an_empty_file_is_told_what_to_begin_with(text: str) -> None:
    what = refused(text)
    assert "the file is empty" in what
    assert "write at least pipeline, source and sink" in what


def test_all_problems_are_told_at_once() -> None:
    what = refused(SMALL.replace("pipeline: shop", "pipeline: 1x\nmore: 1").replace("DR", "7"))
    assert "has 3 problems" in what


def test_a_url_in_place_of_a_section_is_not_repeated() -> None:
    assert "planted" not in refused("pipeline: a\nsource: mysql://u:planted@h/\nsink: 3\n")


@pytest.mark.parametrize("text", ["", "[]", "3", "a: &x [*x]"])
def test_what_is_no_mapping_is_refused(text: str) -> None:
    assert "problem" in refused(text)


def test_anchors_are_followed_and_bombs_are_not() -> None:
    shared = SMALL.replace('["shop.*"]', '&t ["shop.*"]\n  exclude: &e ["shop.x"]')
    assert parse_pipeline(shared).model.source.exclude == ("shop.x",)
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "too large" in refused("\n".join(["l0: &l0 [x]", *levels]))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineFileError, match="cannot be read"):
        load_pipeline(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("port", "ports"), [("47000", (47000, 47000)), ("47000 - 47019", (47000, 47019))]
)
def test_the_assigners_port_may_be_one_or_a_range(port: str, ports: tuple[int, int]) -> None:
    found = parse_pipeline(f"{SMALL}spark: {{assigner_port: {port}}}\n").model.spark.assigner_ports
    assert (found[0], found[-1]) == ports
    assert tuple(parse_pipeline(SMALL).model.spark.assigner_ports) == (0,)


@pytest.mark.parametrize(
    ("target", "seconds"), [("90", 90), ("90s", 90), ("15m", 900), ("2 h", 7200), ("1d", 86_400)]
)
def test_a_target_of_freshness_is_a_number_with_its_unit(target: str, seconds: int) -> None:
    model = parse_pipeline(f"{SMALL}freshness: {{target: {target}}}\n").model
    assert model.freshness.target_s == seconds
    assert parse_pipeline(SMALL).model.freshness.target_s is None


@pytest.mark.parametrize("port", ["80", "47019-47000", "65536", "any", "0", "true"])
def test_what_is_no_port_for_the_assigner_is_refused(port: str) -> None:
    assert "1024 to 65535" in refused(f"{SMALL}spark: {{assigner_port: {port}}}\n")


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ("spark.speculation: true", "speculation"),
        ('spark.speculation: "TRUE"', "speculation"),
        ("driver.memory: 2g", "spark.driver.memory"),
        ("spark.master: local", "leave spark.conn_id out"),
    ],
)
def test_settings_of_spark_that_a_run_would_refuse_or_ignore_are_refused(
    conf: str, words: str
) -> None:
    what = refused(f"{SMALL}spark:\n  conn_id: spark_default\n  conf:\n    {conf}\n")
    assert "has 1 problem" in what
    assert "shop.yaml:line 10, spark.conf" in what
    assert words in what


def test_settings_of_spark_that_are_taken_pass() -> None:
    conf = '{spark.speculation: false, spark.master: "local[2]", spark.executor.cores: 2}'
    assert len(parse_pipeline(f"{SMALL}spark: {{conf: {conf}}}").model.spark.conf) == 3


def throttled(section: str) -> str:
    return f"{SMALL}snapshot:\n  throttle: {section}\n"


def test_a_throttle_is_read_and_without_one_nothing_is_limited() -> None:
    assert parse_pipeline(SMALL).model.snapshot.throttle.limits.is_none
    pace = "rows_per_second: 20000, mb_per_second: 1.5"
    text = f"{{{pace}, max_replica_lag: 2m, replicas: [{{conn_id: b}}]}}"
    throttle = parse_pipeline(throttled(text)).model.snapshot.throttle
    assert throttle.limits == ThrottleLimits(20_000, 1.5, max_replica_lag_s=120)
    assert [each.conn_id for each in throttle.replicas] == ["b"]


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("{max_threads_running: 50, critical_threads_running: 50}", "holds it up"),
        ("{max_replica_lag: 10s}", "the file names none"),
        ("{replicas: [{conn_id: b}]}", "nothing says how far they may be behind"),
        ("{rows_per_second: 0}", "rows_per_second"),
        ("{max_replica_lag: soon, replicas: [{conn_id: b}]}", "is not a span of time"),
        ("{max_replica_lag: 1s, replicas: [{conn_id: b, dsn_env: B}]}", "both are there"),
    ],
)
def test_limits_that_do_not_go_together_are_refused_by_their_line(section: str, said: str) -> None:
    text = refused(throttled(section))
    assert said in text
    assert "line 8" in text or "line 7" in text


def test_a_replica_whose_dsn_is_missing_is_refused_by_its_place_in_the_list() -> None:
    replicas = "replicas: [{dsn_env: ONE_DSN}, {dsn_env: TWO_DSN}]"
    loaded = parse_pipeline(throttled(f"{{max_replica_lag: 10s, {replicas}}}"))
    dsn = "mysql://u:p@127.0.0.1:3306/"
    environment = dict.fromkeys(("SHOP_DSN", "DR_DSN", "ONE_DSN"), dsn)
    with pytest.raises(PipelineFileError, match=r"replicas.*1.*TWO_DSN is not set"):
        resolve_servers(loaded, EnvironmentDsns(environment))
    servers = resolve_servers(loaded, EnvironmentDsns({**environment, "TWO_DSN": dsn}))
    assert servers.environment()["AIRFLOW_CDC_REPLICA_2_DSN"] == dsn
    assert len(servers.replicas) == 2
