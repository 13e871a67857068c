"""Findings as lines: what matters by itself, what nothing depends on in one line."""

from __future__ import annotations

from airflow_cdc_provider.core.findings import Finding, Level, PipelineCode
from airflow_cdc_provider.views.error_lines import all_finding_lines


def denied(privilege: str, subject: str = "db1", level: Level = Level.INFO) -> Finding:
    fix = f"GRANT {privilege} ON *.* TO 'cdc'@'%';"
    text = f"cannot tell what {privilege} shows"
    return Finding(PipelineCode.SINK_UNSEEN, level, subject, text, "", "", fix, lacks=privilege)


def test_looks_that_were_denied_and_hold_nothing_up_share_one_line() -> None:
    findings = [denied("XA_RECOVER_ADMIN"), denied("PROCESS"), denied("FILE", "db2")]
    ((level, line),) = all_finding_lines(findings)
    assert level is Level.INFO
    assert line.startswith("[info] not looked at, the account at db1")
    assert "the account at db1 lacks XA_RECOVER_ADMIN, PROCESS" in line
    assert "the account at db2 lacks FILE" in line


def test_a_look_that_was_denied_and_blocks_is_written_out_with_its_grant() -> None:
    lines = [line for _, line in all_finding_lines([denied("PROCESS", level=Level.BLOCK)])]
    assert lines[0].startswith("[block] db1: cannot tell")
    assert any("GRANT PROCESS" in line for line in lines)


def test_the_level_is_not_repeated_where_the_log_has_one() -> None:
    findings = [denied("PROCESS", level=Level.BLOCK), denied("FILE")]
    lines = [line for _, line in all_finding_lines(findings, file="/dags/shop.yaml")]
    assert lines[0].startswith("db1: cannot tell")
    assert lines[-1].startswith("not looked at, ")
