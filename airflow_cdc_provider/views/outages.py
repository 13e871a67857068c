"""What keeps a job from going forward, in words; from the note that its driver keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.owners import is_gone
from airflow_cdc_provider.core.records import Note, Outage

HELD_UP = "held up"


def outages_of(note: Note | None, generation: int) -> tuple[Outage, ...]:
    """Return the outages that a generation's owner noted, merged by error.

    The heartbeat meets the same errors beside it; these are not returned again.
    """
    if note is None or note.form["generation"] != generation:
        return ()
    found: dict[str, Outage] = {}
    for form in note.form["outages"]:
        outage = _outage(form)
        first = found.setdefault(outage.error.code, outage)
        found[outage.error.code] = replace(first, since_us=min(first.since_us, outage.since_us))
    return tuple(found.values())


def driver_is_gone(note: Note | None, generation: int) -> bool:
    """Tell whether the process that noted a generation's outages was on this machine and ended."""
    if note is None or note.form["generation"] != generation:
        return False
    return is_gone(note.form["process"])


def _outage(form: Mapping[str, Any]) -> Outage:
    """Read an outage from its JSON form."""
    return Outage(
        CdcError.from_json(form["error"]), form["since_us"], form["tries"], form["next_us"]
    )


def outage_text(outage: Outage, now_us: int) -> str:
    """Describe an outage: what fails, since when, tries, and the next try."""
    since = datetime.fromtimestamp(outage.since_us / 1e6, UTC)
    text = f"{outage.error.what} ({outage.error.code}), since {since:%H:%M:%S} UTC"
    text += f", for {max(0.0, (now_us - outage.since_us) / 1e6):.0f} s"
    if outage.tries:
        text += f", tried {outage.tries} {'time' if outage.tries == 1 else 'times'}"
    if outage.next_us:
        wait_s = (outage.next_us - now_us) / 1e6
        text += f", next in {wait_s:.0f} s" if wait_s >= 0.5 else ", tried now"
    return text


def outage_error(outage: Outage, now_us: int) -> CdcError:
    """Return an outage's error, with since when it lasts."""
    return outage.error.saying(outage_text(outage, now_us))


def outage_forms(outages: Iterable[Outage]) -> list[dict[str, Any]]:
    """Return outages as JSON."""
    return [
        {
            "error": outage.error.to_json(),
            "since_us": outage.since_us,
            "tries": outage.tries,
            "next_us": outage.next_us,
        }
        for outage in outages
    ]
