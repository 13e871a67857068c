"""Completing what a person types at a question by the Tab key, where the terminal can."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

try:
    import readline
except ImportError:  # a Python that was built without it asks all the same
    readline = None  # type: ignore[assignment]

_BETWEEN_WORDS = " \t\n,"


@contextmanager
def completing(words: Sequence[str]) -> Iterator[None]:
    """Complete the words of an answer from these, within the block."""
    if readline is None:
        yield
        return
    before = readline.get_completer(), readline.get_completer_delims()
    readline.set_completer(lambda text, number: completed(text, words, number))
    readline.set_completer_delims(_BETWEEN_WORDS)
    # the library of macOS has a language of its own
    is_libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
    try:
        yield
    finally:
        readline.set_completer(before[0])
        readline.set_completer_delims(before[1])


def completed(text: str, words: Sequence[str], number: int) -> str | None:
    """Return the word of a number among those that begin with a text, None behind the last."""
    fitting = [word for word in words if word.startswith(text)]
    return fitting[number] if number < len(fitting) else None
