"""Errors keep their class and their facts between processes, and lose their secrets."""

from __future__ import annotations

import json
import pickle

import pytest

from airflow_cdc_provider.core import errors
from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.engine.errors_as_records import (
    CarriedError,
    carried_error,
)
from airflow_cdc_provider.engine.scrubbing import Secrets

KINDS = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, CdcError)
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_comes_back_as_its_own_class(kind: type[CdcError]) -> None:
    error = kind("what", "where", "risk", "remedy")
    back = CdcError.from_json(json.loads(json.dumps(error.to_json())))
    assert type(back) is kind
    assert back.args == error.args


def test_an_error_keeps_its_facts_where_it_is_told_anew() -> None:
    error = errors.AccessDeniedError("denied", "a server", "", "grant it")
    error.server_error = 1227
    told = error.located("a table").saying("may not look")
    assert type(told) is errors.AccessDeniedError
    assert told.args == ("may not look", "a server; a table", "", "grant it")
    assert (told.server_error, pickle.loads(pickle.dumps(told)).server_error) == (1227, 1227)


def test_an_error_of_an_unknown_code_keeps_its_words() -> None:
    back = CdcError.from_json({"code": "CDC-NEW-001", "what": "it broke"})
    assert "CDC-NEW-001: it broke" in str(back)


def test_an_error_is_found_in_the_text_of_sparks_exception() -> None:
    error = errors.LogPurgedError('gone "quoted"\nand broken', "bin.000001", "rows", "again")
    text = f"[STREAM_FAILED] ...\nTraceback\n  {CarriedError(error)} SQLSTATE: 39000\n=== more"
    found = carried_error(text)
    assert type(found) is errors.LogPurgedError
    assert found.args == error.args


def test_a_password_is_taken_out_of_a_text_in_each_form() -> None:
    secrets = Secrets.of_dsns("mysql://u:p%40ss%2Fw%20rd@h:1/", "sqlite:////state.db")
    text = "p@ss/w rd and p%40ss%2Fw%20rd and 'p@ss/w rd' and p%40ss%2Fw+rd"
    assert "ss" not in secrets.scrub(text)
    assert "ss" not in repr(secrets)
