"""Tests that are to hold on both families of servers alike."""

from __future__ import annotations

import pytest

FAMILIES = pytest.mark.parametrize(
    "family",
    [
        pytest.param("mysql", marks=pytest.mark.mysql),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
    ],
)
