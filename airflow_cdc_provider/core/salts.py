"""The salts of masks, known to a process by the names that the pipeline file has for them.

A plan in the state store holds a salt's name and a proof of it, never the salt. The salts go where
the passwords go: from connections and environment variables to the processes of a job, and to
Spark's executors with what these are to do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache

from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.core.table_shape import Mask, MaskKind, TableShape

SHORTEST_SALT = 16
"""Bytes of a salt: of a shorter one, each that there may be can be tried."""
_ROUNDS = 100_000
_known: dict[str, Salt] = {}


@dataclass(frozen=True, slots=True)
class Salt:
    """A salt and its name; `repr` hides the salt."""

    name: str
    """As the file has it: `salt_env SHOP_SALT`, `conn_id shop_salt`."""
    text: str = field(repr=False)


def keep_salts(salts: Iterable[Salt]) -> None:
    """Make salts known to this process."""
    _known.update((salt.name, salt) for salt in salts)


def proofs(salts: Iterable[Salt]) -> dict[str, str]:
    """Return by the names of salts what tells whether another process has the same ones."""
    return {salt.name: _proof(salt.text) for salt in salts}


def proven(shape: TableShape) -> TableShape:
    """Return a shape whose masks hold proofs of the salts that this process knows."""
    columns = (
        each
        if each.mask is None or each.mask.kind is not MaskKind.SHA256
        else replace(each, mask=replace(each.mask, proof=_proof(_salt(each.mask).text)))
        for each in shape.columns
    )
    return replace(shape, columns=tuple(columns))


def salt_bytes(mask: Mask) -> bytes:
    """Return a mask's salt.

    `RefusedError` if this process does not know it, or knows another one than that by which the
    table's rows were masked.
    """
    text = _salt(mask).text
    if not _is_same(mask):
        raise RefusedError(
            f"the salt {mask.salt} has another value than when rows were masked by it",
            where=mask.salt,
            risk=NOTHING_CHANGED,
            remedy="give it the former value, or `reset` the tables that are masked by it, each "
            "with --table",
        )
    return text.encode()


def other_salt(shape: TableShape) -> str:
    """Return the name of a salt that is another one now than that by which rows were masked.

    Empty if there is none; salts that this process does not know are passed over.
    """
    for each in shape.columns:
        if each.mask is not None and each.mask.salt in _known and not _is_same(each.mask):
            return each.mask.salt
    return ""


def _is_same(mask: Mask) -> bool:
    """Tell whether a mask's salt is the one by which rows were masked."""
    return mask.proof == _proof(_salt(mask).text)


def _salt(mask: Mask) -> Salt:
    """Return the salt that a mask names."""
    if mask.salt not in _known:
        raise RefusedError(
            f"the salt {mask.salt} is not known to this process",
            where=mask.salt,
            risk=NOTHING_CHANGED,
            remedy="let this process and its executors run the same release; if they do, report "
            "this",
        )
    return _known[mask.salt]


@cache
def _proof(text: str) -> str:
    """Return what tells whether a salt is the same one; a guess at it takes long."""
    made = hashlib.pbkdf2_hmac("sha256", text.encode(), b"airflow_cdc salt", _ROUNDS, 16)
    return made.hex()
