"""What several tests need of `test_json_text`."""

from __future__ import annotations

import random
import struct
from typing import Any


def invented(source: random.Random, depth: int = 0) -> Any:
    kind = source.randrange(8 if depth < 4 else 6)
    match kind:
        case 0:
            return source.choice((None, True, False))
        case 1:
            return source.randrange(-(2 ** source.randrange(1, 64)), 2 ** source.randrange(1, 65))
        case 2:
            number = struct.unpack("<d", source.randbytes(8))[0]
            return number if abs(number) < 1e300 else 0.25
        case 3:
            return source.uniform(-1, 1) * 10 ** source.randrange(-20, 25)
        case 4 | 5:
            letters = 'aé\U0001f600"\\/\n\t\x01 '
            return "".join(source.choice(letters) for _ in range(source.choice((0, 3, 130))))
        case 6:
            return [invented(source, depth + 1) for _ in range(source.randrange(6))]
        case _:
            keys = ["k" * source.randrange(12) + str(n) for n in range(source.randrange(6))]
            return {key: invented(source, depth + 1) for key in keys}
