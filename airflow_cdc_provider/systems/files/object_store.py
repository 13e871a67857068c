"""What is asked of a store of files, whatever it is: a folder today, a bucket later.

A system without transactions commits by a name: who creates a name first has committed. So the one
thing that a store must do is to create a file if and only if its name is free. A store that cannot
is refused, never worked around by a lock or by a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class ObjectStore(Protocol):
    """Files by name below one place. A file is whole from the moment its name is there.

    A name is a path below the place, with `/`; no part of it begins with a dot. A store that does
    not answer or is not writable is a `SinkUnreachableError`.
    """

    def read(self, name: str) -> bytes | None:
        """Return a file's content, None if there is no such file."""

    def list(self, prefix: str) -> Sequence[str]:
        """Return the names that begin so, in order; not those in folders below the prefix's own."""

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Create a file; False, and nothing changes, if the name is taken.

        Of several that create one name, on any machines, one gets True. After True the file lasts.
        """

    def delete(self, name: str) -> None:
        """Delete a file; harmless if there is none."""
