r"""How names of databases and tables are written, alone and as patterns.

A plain name ends at a dot, and a dot inside it is doubled: `a..b` is the name `a.b`. In backticks,
as in SQL, a name has any characters, a backtick inside it doubled. Both spellings are of one name.

In a pattern a `*` of a plain name stands for any characters, and between slashes there is a regular
expression (Python's) that has to fit the whole name, a slash inside it written `\/`. In backticks
neither means anything but itself. `shop.`a*b`` is one table, `shop.a*b` a pattern, and so is
`/shop_[0-9]+/.orders`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

QUOTED = r"`(?:[^`]|``)+`"
"""A name in backticks, as a regular expression."""
REGEX = r"/(?:[^/\\]|\\.)+/"
"""A pattern between slashes, as a regular expression."""
_PLAIN = r"(?:[^.]|\.\.)+"
_PART = re.compile(rf"(?P<quoted>{QUOTED})|(?P<plain>{_PLAIN})", re.DOTALL)
_PATTERN = re.compile(
    rf"(?P<quoted>{QUOTED})|(?P<regex>{REGEX})|(?P<plain>(?![/]){_PLAIN})", re.DOTALL
)
_GROUP = re.compile(r"\{([0-9]+)\}")
_GAP = re.compile(rf"\*|{_GROUP.pattern}")


class NameKind(StrEnum):
    """How a pattern fits names."""

    LITERAL = "literal"
    """It fits one name, itself."""
    GLOB = "glob"
    """It has stars."""
    REGEX = "regex"
    FILLED = "filled"
    """On the right of a route: `{1}` is the first group of the regular expressions on the left.

    It may have a star as well.
    """


@dataclass(frozen=True, slots=True)
class NamePattern:
    """A pattern of a database's or a table's name."""

    kind: NameKind
    text: str
    """The name; the name with stars; the regular expression; the name with `{1}`."""

    @classmethod
    def literal(cls, name: str) -> NamePattern:
        """Return the pattern of one name."""
        return cls(NameKind.LITERAL, name)

    @property
    def is_exact(self) -> bool:
        """Tell whether it fits one name only."""
        return self.kind is NameKind.LITERAL

    @property
    def stars(self) -> int:
        """Return how many stars it has."""
        has_any = self.kind in (NameKind.GLOB, NameKind.FILLED)
        return self.text.count("*") if has_any else 0

    @property
    def groups(self) -> int:
        """Return how many groups its regular expression has; 0 if it is none."""
        return re.compile(self.text).groups if self.kind is NameKind.REGEX else 0

    @property
    def filled_by(self) -> tuple[int, ...]:
        """Return the numbers of the groups that fill it."""
        if self.kind is not NameKind.FILLED:
            return ()
        return tuple(int(found[1]) for found in _GROUP.finditer(self.text))

    def fit(self, name: str, *, ignore_case: bool = False) -> tuple[str, ...] | None:
        """Return what its stars or groups stand for in a name; None if it does not fit.

        A group that takes no part is the empty text.
        """
        if self.is_exact and not ignore_case:
            return () if self.text == name else None
        found = _compiled(self, ignore_case).fullmatch(name)
        return None if found is None else found.groups("")

    def filled(self, stars: tuple[str, ...], groups: tuple[str, ...]) -> str:
        """Return the name that it is with these texts in the place of its star or its groups."""
        if self.kind is NameKind.FILLED:
            return _GAP.sub(lambda f: groups[int(f[1]) - 1] if f[1] else stars[0], self.text)
        return self.text.replace("*", stars[0]) if self.stars else self.text

    def __str__(self) -> str:
        if self.kind is NameKind.REGEX:
            return f"/{self.text}/"
        if not self.is_exact:
            return self.text.replace(".", "..")
        means_more = "*" in self.text or self.text.startswith("/") or _GROUP.search(self.text)
        return quoted(self.text) if means_more else spelt(self.text)


@lru_cache(maxsize=1024)
def _compiled(pattern: NamePattern, ignore_case: bool) -> re.Pattern[str]:  # noqa: FBT001 - a cache's key
    """Return a pattern as a compiled regular expression."""
    match pattern.kind:
        case NameKind.REGEX:
            text = pattern.text
        case NameKind.GLOB:
            text = "(.*)".join(map(re.escape, pattern.text.split("*")))
        case NameKind.FILLED:
            text = "(.*)".join(map(re.escape, _GAP.split(pattern.text)[::2]))
        case _:
            text = re.escape(pattern.text)
    return re.compile(text, re.DOTALL | (re.IGNORECASE if ignore_case else 0))


def quoted(name: str) -> str:
    """Return a name in backticks."""
    return f"`{name.replace('`', '``')}`"


def spelt(name: str) -> str:
    """Return a name as `read_names` reads it: plain if it can be, else in backticks."""
    is_plain = not name.startswith((".", "`")) and not name.endswith(".")
    return name.replace(".", "..") if is_plain else quoted(name)


def read_names(text: str) -> tuple[str, ...]:
    """Read names with dots between them, with no pattern in them; `ValueError` if they are wrong.

    Of one that begins with a backtick nothing but a name in backticks is read.
    """
    return tuple(_name(found) for found in _parts(_PART, text))


def read_patterns(text: str, *, is_target: bool = False) -> tuple[NamePattern, ...]:
    """Read patterns with dots between them; `ValueError` if they are wrong.

    `is_target`: of the right side of a route, where `{1}` is filled and nothing is to be matched.
    """
    return tuple(_pattern(found, is_target=is_target) for found in _parts(_PATTERN, text))


def _parts(part: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield the parts of a text that have dots between them; `ValueError` if there is no such."""
    at = 0
    while True:
        found = part.match(text, at)
        if found is None or (found["plain"] or "").startswith("`"):
            raise ValueError(f"no name begins at {text[at:]!r}")
        yield found
        at = found.end()
        if at == len(text):
            return
        if text[at] != ".":
            raise ValueError(f"{text[at:]!r} is behind the end of a name")
        at += 1


def _name(found: re.Match[str]) -> str:
    """Return the name that a part is."""
    quoted_name: str | None = found["quoted"]
    if quoted_name is not None:
        return quoted_name[1:-1].replace("``", "`")
    return found["plain"].replace("..", ".")


def _pattern(found: re.Match[str], *, is_target: bool) -> NamePattern:
    """Return the pattern that a part is."""
    if found["regex"] is not None:
        text = found["regex"][1:-1]
        if is_target:
            raise ValueError(f"{found['regex']} fits many names, and a table goes to one")
        try:
            re.compile(text)
        except re.error as error:
            raise ValueError(f"/{text}/ is no regular expression: {error}") from None
        return NamePattern(NameKind.REGEX, text)
    name = _name(found)
    if found["quoted"] is not None:
        return NamePattern.literal(name)
    if is_target and _GROUP.search(name):
        return NamePattern(NameKind.FILLED, name)
    if "*" not in name:
        return NamePattern.literal(name)
    if name.startswith(".") or name.endswith("."):
        # beside the dot between two names it could not be told whose it is
        raise ValueError(f"{name!r} has a * and a dot at its end: write it as a regular expression")
    return NamePattern(NameKind.GLOB, name)
