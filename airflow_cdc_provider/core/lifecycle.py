"""The states a pipeline and its tables go through, and which moves are allowed.

Wanted and actual state are kept apart: a command changes what is wanted, the owner of the
pipeline changes what is. Every write names the state it moves from.

What is wanted:

    from     pause    resume   restart               who is at work    a new plan
    run      stop     run      restart, else run     run               run
    stop     stop     run      restart, else run     stop              run
    restart  stop     run      restart, else run     run               run

`restart` is wanted of an owner only; where nobody is at work, the next run begins from the ledger
anyway. Whoever is at work turns it into `run` when it has begun again.

What is:

    from         to
    NEW          PLANNING                                    a plan is made
    PLANNING     SNAPSHOT                                    splits are read
    SNAPSHOT     HANDED_OFF                                  all of them are
    HANDED_OFF   STREAMING                                   the log is followed
    STREAMING    STOPPED                                     at an end that was asked for
    STOPPED      STREAMING                                   the next run, or `restart`
    any          FAILED                                      with an error
    FAILED       PLANNING, SNAPSHOT, HANDED_OFF, STREAMING   the next run, `resume` or `restart`
    any          PLANNING                                    `reset`: a new plan
    any          NEW                                         `drop`: nothing is remembered

A new owner finds HANDED_OFF where the one before it was STREAMING: a stream is its owner's.
"""

from __future__ import annotations

from enum import StrEnum

from airflow_cdc_provider.core.errors import NOTHING_CHANGED, StateMovedError

LEASE_S = 60.0
"""Seconds that a lease lasts from when it was taken or renewed; whoever is at work renews it."""


class Wanted(StrEnum):
    """What the pipeline is wanted to do: run, stop, or restart."""

    RUN = "run"
    STOP = "stop"
    RESTART = "restart"
    """To run, from the ledger anew: whoever is at work ends what it has open and begins again."""


class Phase(StrEnum):
    """The phase that a pipeline is in."""

    NEW = "new"
    PLANNING = "planning"
    SNAPSHOT = "snapshot"
    HANDED_OFF = "handed_off"
    STREAMING = "streaming"
    STOPPED = "stopped"
    FAILED = "failed"


class TablePhase(StrEnum):
    """The phase that one table is in."""

    PLANNED = "planned"
    SNAPSHOT = "snapshot"
    READ = "read"
    CHANGED = "changed"
    """Its definition changed while it was first read: it begins again beside the stream."""
    CATCHING_UP = "catching_up"
    CONSISTENT = "consistent"
    PAUSED = "paused"
    """A person wants the stream to leave it alone."""
    FAILED = "failed"
    """The stream leaves it alone, for an error that only it has."""


LEFT_ALONE = frozenset({TablePhase.PAUSED, TablePhase.FAILED})
"""What a table is that its stream leaves alone."""


class SplitStatus(StrEnum):
    """The status of one split."""

    PLANNED = "planned"
    READING = "reading"
    FINISHED = "finished"
    CUT = "cut"
    """Too big: replaced by two halves."""
    FAILED = "failed"


_MOVES: dict[Phase, frozenset[Phase]] = {
    Phase.NEW: frozenset({Phase.PLANNING, Phase.FAILED}),
    Phase.PLANNING: frozenset({Phase.PLANNING, Phase.SNAPSHOT, Phase.FAILED}),
    Phase.SNAPSHOT: frozenset({Phase.SNAPSHOT, Phase.PLANNING, Phase.HANDED_OFF, Phase.FAILED}),
    Phase.HANDED_OFF: frozenset({Phase.HANDED_OFF, Phase.STREAMING, Phase.PLANNING, Phase.FAILED}),
    Phase.STREAMING: frozenset({Phase.STREAMING, Phase.STOPPED, Phase.PLANNING, Phase.FAILED}),
    Phase.STOPPED: frozenset({Phase.STOPPED, Phase.STREAMING, Phase.PLANNING, Phase.FAILED}),
    Phase.FAILED: frozenset(
        {Phase.FAILED, Phase.PLANNING, Phase.SNAPSHOT, Phase.HANDED_OFF, Phase.STREAMING}
    ),
}


def check_move(current: Phase, to: Phase) -> None:
    """Raise `StateMovedError` for a change of phase that is not allowed."""
    if to not in _MOVES[current]:
        raise StateMovedError(
            f"a pipeline does not go from {current.value} to {to.value}",
            risk=NOTHING_CHANGED,
            remedy="look at the pipeline's status; another run may have moved it",
        )
