"""Positions of the counted log can be read, as those of any system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from airflow_cdc_provider.systems import kinds
from tests.engine.counter_log import COUNTER


@pytest.fixture(autouse=True, scope="module")
def counted() -> Iterator[None]:
    known: Mapping[str, kinds.SystemKind] = {**kinds.KINDS, COUNTER.name: COUNTER}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kinds, "KINDS", known)
        yield
