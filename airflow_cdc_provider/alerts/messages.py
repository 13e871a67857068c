"""One message as receivers get it: JSON for programs, a short text for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from airflow_cdc_provider.alerts.notices import Kind, Notice
from airflow_cdc_provider.views.freshness import span

_LONGEST = 2000
"""Letters of an error that lists every table; Slack and people take no more."""
_TITLES = {
    Kind.OUTAGE: "an outage",
    Kind.FAILED: "the pipeline failed",
    Kind.REFUSED: "a run was refused",
    Kind.TABLE: "a table is stopped",
    Kind.LAG: "the copy is late",
    Kind.APPROVAL: "a request waits for approval",
}


@dataclass(frozen=True, slots=True)
class Message:
    """A message that there is a problem, or that it is over."""

    pipeline: str
    notice: Notice
    over_us: int = 0
    """When the problem was over, 0 while it is there."""
    link: str = ""

    @property
    def message_id(self) -> str:
        """Return an id that is the same for each try to send this message."""
        stage = "over" if self.over_us else "begun"
        return f"{self.pipeline}/{self.notice.key}/{self.notice.since_us}/{stage}"

    @property
    def title(self) -> str:
        """Return the message's title, as a mail's subject."""
        over = "over: " if self.over_us else ""
        code = f" ({self.notice.code})" if self.notice.code else ""
        return f"[{self.pipeline}] {over}{_TITLES[self.notice.kind]}{code}"

    def to_json(self) -> Mapping[str, Any]:
        """Return the message as plain values for webhooks; later releases only add fields."""
        notice = self.notice
        return {
            "id": self.message_id,
            "pipeline": self.pipeline,
            "kind": notice.kind.value,
            "subject": notice.subject,
            "over": bool(self.over_us),
            "code": notice.code,
            "what": _short(notice.what),
            "where": _short(notice.where),
            "risk": _short(notice.risk),
            "remedy": _short(notice.remedy),
            "since": _moment(notice.since_us),
            "over_since": _moment(self.over_us) if self.over_us else None,
            "link": self.link or None,
            "text": self.text,
        }

    @property
    def text(self) -> str:
        """Return the message as a short text."""
        notice = self.notice
        since = datetime.fromtimestamp(notice.since_us / 1e6, UTC)
        facts = [self.title, _short(notice.what)]
        if self.over_us:
            lasted = span(max(0, self.over_us - notice.since_us) / 1e6)
            facts.append(f"Since: {since:%Y-%m-%d %H:%M:%S} UTC, over after {lasted}")
        else:
            facts.append(f"Since: {since:%Y-%m-%d %H:%M:%S} UTC")
            named = {"Where": notice.where, "At risk": notice.risk, "What to do": notice.remedy}
            facts += [f"{name}: {_short(fact)}" for name, fact in named.items() if fact]
        if self.link:
            facts.append(self.link)
        return "\n".join(facts)


def _moment(at_us: int) -> str:
    """Return a time as ISO 8601 text."""
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="seconds")


def _short(text: str) -> str:
    """Cut a text that is too long."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
