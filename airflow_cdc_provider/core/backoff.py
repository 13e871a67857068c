"""Waiting longer after each failure, up to a limit, and giving up after one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackOff:
    """The waits between retries: `first_s`, doubling up to `longest_s`, until `give_up_s`."""

    first_s: float = 0.5
    longest_s: float = 15.0
    give_up_s: float = 300.0

    def wait_s(self, failures: int) -> float:
        """Return how many seconds to wait after this many failures in a row, from 1 on."""
        return float(min(self.longest_s, self.first_s * 2 ** min(failures - 1, 30)))

    def told(self, failures: int, failing_for_s: float) -> str:
        """Describe for a log line how often an operation has failed, and for how long."""
        return f"failure {failures}, for {failing_for_s:.0f} of at most {self.give_up_s:.0f} s"

    def is_over(self, failing_for_s: float) -> bool:
        """Tell whether an operation has failed for too long to try again."""
        return failing_for_s >= self.give_up_s


FOR_A_DAY = BackOff(longest_s=30.0, give_up_s=86_400.0)
"""Nobody starts a continuous stream again after a night's maintenance, and an outage is told."""
