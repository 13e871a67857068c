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
        if bool(dsn.user) != bool(dsn.password):
            half = "a secret and no key id" if dsn.password else "a key id and no secret"
            raise ValueError(f"there is {half}")
        options = dsn.options
        token = options.get(TOKEN_OPTION, "")
        if token and not dsn.user:
            raise ValueError(f"there is {TOKEN_OPTION} and no key that it is of")
        endpoint = options.get(ENDPOINT_OPTION, "")
        if endpoint and not endpoint.startswith(("https://", "http://")):
            raise ValueError(f"{ENDPOINT_OPTION} is no URL that begins with https:// or http://")
        return cls(dsn.user, dsn.password, token, options.get(REGION_OPTION, ""), endpoint)

    @property
    def options(self) -> Mapping[str, str]:
        """Return the options of a DSN that say it, but for the key."""
        values = (self.region, self.endpoint_url, self.token)
        return {name: value for name, value in zip(ACCESS_OPTIONS, values, strict=True) if value}


AS_THE_ENVIRONMENT_SAYS = StoreAccess()
