"""The passwords of a job, and taking them out of any text that leaves it."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import quote, quote_plus, unquote

from airflow_cdc_provider.core.dsn import passwords_in

_HIDDEN = "***"


@dataclass(frozen=True, slots=True)
class Secrets:
    """The passwords of a job, which are removed from texts; never shown by `repr`."""

    _texts: frozenset[str] = field(default=frozenset(), repr=False)

    @classmethod
    def of_dsns(cls, *dsns: str) -> Secrets:
        """Collect the passwords of DSNs, in each form in which they may be printed."""
        found: set[str] = set()
        for dsn in dsns:
            for written in passwords_in(dsn):
                plain = unquote(written)
                found |= {written, plain, quote(plain, safe=""), quote_plus(plain), repr(plain)}
        return cls(frozenset(found))

    @classmethod
    def of_texts(cls, *texts: str) -> Secrets:
        """Collect secrets whose text is used unchanged, such as a webhook's URL."""
        return cls(frozenset(text for text in texts if text))

    def with_texts(self, *texts: str) -> Secrets:
        """Return these secrets and others whose text is used unchanged."""
        return Secrets(self._texts.union(filter(None, texts)))

    def scrub(self, text: str) -> str:
        """Return the text without any password."""
        for secret in sorted(self._texts, key=len, reverse=True):
            text = text.replace(secret, _HIDDEN)
        return text
