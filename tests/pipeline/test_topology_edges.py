"""Preflight of an edge looks at its folder: a new edge is refused, one that has rows is warned."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from airflow_cdc_provider.cli.main import main
from airflow_cdc_provider.core.errors import PipelineFileError, PreflightError
from airflow_cdc_provider.core.findings import Finding, Level
from airflow_cdc_provider.pipeline.connections import EnvironmentDsns
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.pipeline.run import open_to_look
from airflow_cdc_provider.pipeline.steps.checking import check, require_fit
from airflow_cdc_provider.pipeline.steps.file_diff import require_unchanged
from airflow_cdc_provider.pipeline.steps.planning import plan
from tests.pipeline.conftest import Shop

TOPOLOGY = """\
topology:
  name: shops
  src_node: {src}
  dst_node: {dst}
"""
BACK = """\
pipeline: back
source:
  dsn_env: DR_DSN
  tables: ["{target}.*"]
sink:
  dsn_env: SHOP_DSN
  route: {{"{target}.*": "{database}.*"}}
"""


@pytest.fixture
def there(shop: Shop) -> Shop:
    """Return a shop whose file is the edge from berlin to paris."""
    shop.path.write_text(shop.path.read_text() + TOPOLOGY.format(src="berlin", dst="paris"))
    return shop


def back(shop: Shop, *, src: str = "paris", name: str = "back.yaml", more: str = "") -> Path:
    """Write the file of the edge back."""
    text = BACK.format(target=shop.target, database=shop.database)
    path = shop.path.with_name(name)
    path.write_text(text + TOPOLOGY.format(src=src, dst="berlin") + more)
    return path


def found(shop: Shop) -> list[Finding]:
    with closing(open_to_look(load_pipeline(shop.path), EnvironmentDsns(shop.environment))) as run:
        return [each for each in check(run).findings if each.code == "topology.edges"]


def test_a_file_beside_edges_is_told_only_if_it_copies_from_node_to_node(shop: Shop) -> None:
    text = shop.path.read_text()
    there = text.replace("pipeline: ", "pipeline: t_") + TOPOLOGY.format(src="berlin", dst="paris")
    shop.path.with_name("there.yaml").write_text(there)
    back(shop)
    (blocked,) = found(shop)
    assert blocked.level is Level.BLOCK
    assert "would go round for ever" in blocked.observed
    shop.path.write_text(text.replace(f'"{shop.target}.*"', '"reports.*"'))
    assert not found(shop)
    shop.path.write_text(text)
    for file in ("there.yaml", "back.yaml"):
        shop.path.with_name(file).unlink()
    assert not found(shop)


def test_an_edge_with_the_one_back_is_fit(there: Shop) -> None:
    back(there)
    assert not found(there)
    require_fit(there.run())


def test_a_first_edge_is_warned_that_nothing_comes_back_and_is_fit(there: Shop) -> None:
    (warned,) = found(there)
    assert warned.level is Level.WARN
    assert "what is written at paris does not come back" in warned.observed
    require_fit(there.run())


def test_a_new_edge_is_refused_and_one_that_has_rows_is_warned(there: Shop) -> None:
    wrong = back(there, src="rome")
    (blocked, *others) = found(there)
    assert blocked.level is Level.BLOCK
    assert blocked.subject == "back.yaml, line 2, source"
    assert "is node rome here, and node paris in shop.yaml" in blocked.observed
    assert {each.level for each in others} <= {Level.WARN}
    with pytest.raises(PreflightError, match=r"topology\.edges"):
        require_fit(there.run())
    wrong.unlink()
    run = there.run()
    require_fit(run)
    plan(run)
    back(there, src="rome")
    assert {each.level for each in found(there)} == {Level.WARN}
    require_fit(there.run())


def test_a_file_that_is_refused_may_be_an_edge_and_is_a_warning(there: Shop) -> None:
    back(there, more="sauce: 1\n")
    assert any("the file is refused" in each.observed for each in found(there))
    assert {each.level for each in found(there)} == {Level.WARN}


def test_edges_of_another_topology_do_not_refuse_this_one(there: Shop) -> None:
    back(there)
    other = "pipeline: other\nsource: {dsn_env: A_DSN, tables: [crm.*]}\nsink: {dsn_env: B_DSN}\n"
    other += "topology: {name: crm, src_node: a, dst_node: b, do_nodes: [c]}\n"
    there.path.with_name("other.yaml").write_text(other)
    assert not found(there)


def test_show_has_the_place_of_an_edge(
    there: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, dsn in there.environment.items():
        monkeypatch.setenv(name, dsn)
    main(["show", str(there.path)])
    line = "  topology shops: berlin -> paris (tree, marker airflow_cdc.shops)"
    assert line in capsys.readouterr().out.splitlines()


def test_a_plan_s_edge_is_not_another_one_later(there: Shop) -> None:
    run = there.run()
    plan(run)
    require_unchanged(there.run())
    text = there.path.read_text()
    for changed, line, words in (
        (text.replace("dst_node: paris", "dst_node: rome"), 8, "shops: berlin -> rome"),
        (f"{text}  ignore_nodes: [oslo]\n", 8, "none of oslo"),
        (text.partition("topology:")[0], 1, "in no topology now"),
    ):
        there.path.write_text(changed)
        with pytest.raises(PipelineFileError) as caught:
            require_unchanged(there.run())
        assert words in caught.value.what
        assert "shops: berlin -> paris (tree, marker airflow_cdc.shops)" in caught.value.what
        assert f"shop.yaml:line {line}, topology" in caught.value.what


def test_a_pipeline_that_has_rows_becomes_no_edge(shop: Shop) -> None:
    plan(shop.run())
    shop.path.write_text(shop.path.read_text() + TOPOLOGY.format(src="berlin", dst="paris"))
    with pytest.raises(PipelineFileError, match="while it was in no topology"):
        require_unchanged(shop.run())
