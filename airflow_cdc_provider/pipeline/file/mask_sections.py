"""How columns are masked: what is kept of their values, and the salts of those that are hashed."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from airflow_cdc_provider.core.table_shape import Mask, MaskKind
from airflow_cdc_provider.core.wrong_value import WrongValueError
from airflow_cdc_provider.systems.sections.base import Section
from airflow_cdc_provider.systems.sections.field_types import ConnectionId, EnvironmentName

_Length = Annotated[int, Field(ge=0)]


class SaltReference(Section):
    """A salt, by the connection or the environment variable that holds it."""

    conn_id: ConnectionId | None = Field(
        default=None,
        description="Airflow connection whose password is the salt.",
        examples=["shop_salt"],
    )
    salt_env: EnvironmentName | None = Field(
        default=None,
        description="Environment variable that holds the salt: 16 bytes at least.",
        examples=["SHOP_SALT"],
    )

    @model_validator(mode="after")
    def _is_named(self) -> Self:
        """Require exactly one of `conn_id` and `salt_env`."""
        if (self.conn_id is None) == (self.salt_env is None):
            both = "both are" if self.conn_id else "neither is"
            raise WrongValueError(
                f"wanted one of conn_id and salt_env, {both} there",
                "write conn_id: <Airflow connection>, or salt_env: <environment variable>",
            )
        return self

    @property
    def name(self) -> str:
        """Return the salt's name: `salt_env SHOP_SALT`, `conn_id shop_salt`."""
        return f"conn_id {self.conn_id}" if self.conn_id else f"salt_env {self.salt_env}"


class MaskSetting(Section):
    """What is kept of a masked column's values; NULL stays NULL."""

    fixed: str | None = Field(
        default=None, description="One text for all values.", examples=["***"]
    )
    first: _Length | None = Field(
        default=None, description="The first characters, or bytes of a binary column.", examples=[2]
    )
    last: _Length | None = Field(
        default=None, description="The last characters, or bytes of a binary column.", examples=[4]
    )
    sha256: SaltReference | None = Field(
        default=None,
        description="The SHA-256 of a salt with the value behind it, as 64 hexadecimal digits: "
        "equal values stay equal. The salt is in an environment variable or a connection.",
        examples=[{"salt_env": "SHOP_SALT"}],
    )

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        """Require exactly one kind of mask."""
        given = (self.fixed, self.first, self.last, self.sha256)
        if sum(each is not None for each in given) != 1:
            raise WrongValueError(
                "a mask is one of fixed, first, last and sha256",
                "write one of them, as {first: 2}, or null to keep nothing",
            )
        return self

    @property
    def mask(self) -> Mask:
        if self.fixed is not None:
            return Mask(MaskKind.FIXED, text=self.fixed)
        if self.first is not None:
            return Mask(MaskKind.FIRST, length=self.first)
        if self.sha256 is not None:
            return Mask(MaskKind.SHA256, salt=self.sha256.name)
        return Mask(MaskKind.LAST, length=self.last or 0)
