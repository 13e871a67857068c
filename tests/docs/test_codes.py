"""Every code that the product may show is explained, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from airflow_cdc_provider.core.errors import CdcError, RetryableError
from airflow_cdc_provider.core.findings import FindingCode, Level, PipelineCode
from airflow_cdc_provider.systems.file_log.preflight import LogCode
from airflow_cdc_provider.systems.lake.preflight import LakeCode
from airflow_cdc_provider.systems.mysql.preflight.codes import Code
from airflow_cdc_provider.systems.mysql.preflight.own_log import OwnLogCode
from tests.docs.pages import PAGES, first_cells, page, rows, section

_FINDING_CODES: list[FindingCode] = [*PipelineCode, *Code, *OwnLogCode, *LogCode, *LakeCode]
_ERROR_CODE = re.compile(r"CDC(?:-[A-Z]+)?-\d{3}")


def _family(kind: type[CdcError]) -> Iterator[type[CdcError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _family(child)


def test_every_error_code_is_explained() -> None:
    explained = set(_ERROR_CODE.findall(page("failures.md")))
    assert {kind.code for kind in _family(CdcError)} == explained


def test_no_page_names_a_code_that_there_is_not() -> None:
    known = {kind.code for kind in _family(CdcError)}
    for path in PAGES:
        assert set(_ERROR_CODE.findall(path.read_text(encoding="utf-8"))) <= known, path.name


def test_errors_that_are_tried_again_stand_together() -> None:
    told = first_cells(section(page("failures.md"), "Trying again may mend it"))
    assert told == {kind.code for kind in _family(RetryableError)}


def test_a_refusal_is_named_by_its_class() -> None:
    classes = {kind.__name__: kind.code for kind in _family(CdcError)}
    told = [c for c in rows(page("guarantees.md")) if c[-1].strip("`") in classes]
    assert told
    for cells in told:
        assert classes[cells[-1].strip("`")] == cells[-2].strip("`")


def test_every_finding_is_on_the_page_in_its_own_words_and_no_other() -> None:
    told = [c for c in rows(page("preflight.md")) if len(c) == 3 and c[0].startswith("`")]
    assert len(told) == len(_FINDING_CODES)
    assert {tuple(cells) for cells in told} == {
        (f"`{code}`", code.levels, code.says) for code in _FINDING_CODES
    }


def test_a_finding_s_levels_are_levels() -> None:
    for code in _FINDING_CODES:
        assert set(code.levels.split(", ")) <= set(Level), code
