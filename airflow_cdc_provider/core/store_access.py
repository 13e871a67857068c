"""How to get into a store of files, where the environment does not say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from airflow_cdc_provider.core.dsn import TOKEN_OPTION, Dsn

REGION_OPTION, ENDPOINT_OPTION = "region_name", "endpoint_url"
ACCESS_OPTIONS = (REGION_OPTION, ENDPOINT_OPTION, TOKEN_OPTION)
"""What a DSN may say beside the key and its secret, as Airflow's connections of type `aws` do."""


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """A key of a store, and where the store is; what is empty is as the environment says."""

    key_id: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    """Of a key that is valid for some hours."""
    region: str = ""
    endpoint_url: str = ""

    @classmethod
    def of(cls, dsn: Dsn) -> Self:
        """Return what a DSN says of it; `ValueError`, which repeats no value, for half a key."""
        named = (TOKEN_OPTION, REGION_OPTION, ENDPOINT_OPTION)
        return cls.made(dsn.user, dsn.password, *(dsn.options.get(name, "") for name in named))

    @classmethod
    def made(cls, key_id: str, secret: str, token: str, region: str, endpoint_url: str) -> Self:
        """Return what these texts say, each empty if it is not given; `ValueError` as above."""
        if bool(key_id) != bool(secret):
            half = "a secret and no key id" if secret else "a key id and no secret"
            raise ValueError(f"there is {half}")
        if token and not key_id:
            raise ValueError("there is a session's token and no key that it is of")
        if endpoint_url and not endpoint_url.startswith(("https://", "http://")):
            raise ValueError("the endpoint is no URL that begins with https:// or http://")
        if "@" in endpoint_url:
            raise ValueError("the endpoint has an account in it, which is shown")
        return cls(key_id, secret, token, region, endpoint_url)

    @property
    def options(self) -> Mapping[str, str]:
        """Return the options of a DSN that say it, but for the key."""
        values = (self.region, self.endpoint_url, self.token)
        return {name: value for name, value in zip(ACCESS_OPTIONS, values, strict=True) if value}


AS_THE_ENVIRONMENT_SAYS = StoreAccess()
