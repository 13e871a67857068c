"""A UUID or address that a person writes, as the text that MariaDB prints for it."""

from __future__ import annotations

import ipaddress
import re

_UUID = re.compile(r"[0-9a-f]{32}")
_MAPPED, _GROUPS = "::ffff:", 8


def canonical_text(kind: str, text: str) -> str | None:
    """Return a value of the type `uuid`, `inet4` or `inet6` as the server prints it.

    None if the text is no such value.
    """
    if kind == "uuid":
        digits = text.replace("-", "").lower()
        parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        return "-".join(parts) if _UUID.fullmatch(digits) else None
    try:
        if kind == "inet4":
            return str(ipaddress.IPv4Address(text))
        return None if "%" in text else _inet6_text(int(ipaddress.IPv6Address(text)))
    except ValueError:
        return None


def _inet6_text(number: int) -> str:
    """Return an IPv6 address: `::` for the first of the longest runs of zero groups."""
    high, low = number >> 32, number & 0xFFFFFFFF
    if high == 0xFFFF or (high == 0 and low >> 16):
        return (_MAPPED if high else "::") + str(ipaddress.IPv4Address(low))
    groups = [f"{number >> 16 * place & 0xFFFF:x}" for place in reversed(range(_GROUPS))]
    best, length = 0, 0
    for first in range(_GROUPS):
        run = next((n for n, each in enumerate(groups[first:]) if each != "0"), _GROUPS - first)
        if run > length:
            best, length = first, run
    if not length:
        return ":".join(groups)
    return ":".join(groups[:best]) + "::" + ":".join(groups[best + length :])
