"""Schedules of the model's nodes: what is drawn, and how its steps are taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from hypothesis import strategies as st

from airflow_cdc_provider.core.errors import SinkBusyError
from tests.engine.nodes.edges import Edge
from tests.engine.nodes.log_reading import Reading
from tests.engine.nodes.nodes_world import Start, World, Write
from tests.engine.nodes.rows import SHARED_KEYS, TABLES, Scope
from tests.engine.nodes.stores import Writing

MOMENTS = ("before write", "before write", "after write", "before commit")


@dataclass(frozen=True)
class Writes:
    """A node commits changes in one transaction."""

    node: int
    writes: tuple[Write, ...]


@dataclass(frozen=True)
class Meanwhile:
    """What happens at an edge's sink while its transaction is open."""

    moment: str
    writes: tuple[Write, ...] = ()
    edge: int = 0
    """Without `writes`: the one that brings something then, if it goes to the same node."""
    is_deadlock: bool = False
    """The transaction is undone instead, and tried again."""


@dataclass(frozen=True)
class Deliver:
    """An edge brings transactions."""

    edge: int
    transactions: int = 9
    most: int = 100
    """Changes in a batch."""
    fuse: int = 0
    """Acts until its session is ended; 0 for none."""
    meanwhile: Meanwhile | None = None
    guard_fuse: int = 0
    """Transactions that its guard reads until it loses its connection."""


@dataclass(frozen=True)
class Crash:
    """An edge loses what it has in memory."""

    edge: int


@dataclass(frozen=True)
class Idle:
    """An edge moves its ledger over log that holds nothing for the sink."""

    edge: int


@dataclass(frozen=True)
class Reread:
    """A split is read again, or the one that is being read goes on."""

    edge: int
    scope: Scope = field(default_factory=Scope)
    acts: int = 4
    """L is noted, rows are read, H is noted, and they join."""
    is_pushed: bool = True
    """The stream passes H before they are to join."""
    fuse: int = 0
    meanwhile: Meanwhile | None = None


@dataclass(frozen=True)
class Stop:
    """An edge's stream leaves a table alone."""

    edge: int
    table: int = 0


@dataclass(frozen=True)
class Alone:
    """An edge brings a table further that its stream leaves alone, and back if it can."""

    edge: int
    table: int = 0
    transactions: int = 9
    fuse: int = 0
    meanwhile: Meanwhile | None = None


@dataclass(frozen=True)
class Drift:
    """A row changes without a word in the log."""

    node: int
    write: Write


Step = Writes | Deliver | Crash | Idle | Reread | Stop | Alone | Drift


def run(start: Start, steps: Sequence[Step]) -> World:
    """Take the steps, and see what comes of them."""
    world = World(start)
    for step in steps:
        take(world, step)
    world.finish()
    return world


def take(world: World, step: Step) -> None:
    """Take one step."""
    match step:
        case Writes(node, writes):
            world.write(node, writes)
        case Drift(node, write):
            world.drift(node, write)
        case _:
            _take_of_edge(world, world.edges[step.edge % len(world.edges)], step)


def _take_of_edge(
    world: World, edge: Edge, step: Deliver | Crash | Idle | Reread | Stop | Alone
) -> None:
    match step:
        case Deliver():
            _prepare(world, edge, step.fuse, step.meanwhile)
            edge.guard_fuse[:] = [step.guard_fuse] if step.guard_fuse else []
            edge.deliver(step.transactions, most=step.most)
            edge.fuse.clear()
            edge.guard_fuse.clear()
        case Crash():
            edge.crash()
        case Idle():
            edge.commit_idle_log()
        case Stop():
            edge.stop(TABLES[step.table])
        case Alone():
            _prepare(world, edge, step.fuse, step.meanwhile)
            edge.catch_up(TABLES[step.table], step.transactions)
            edge.fuse.clear()
        case Reread():
            for _ in range(step.acts if edge.topology.is_guarded else 0):
                _read_again(world, edge, step)


def _read_again(world: World, edge: Edge, step: Reread) -> None:
    """Take the next step of a split that is read again; begin another one where there is none."""
    reading = edge.rereading
    if reading is None:
        edge.read_again(step.scope)
        return
    if reading.high is not None:
        if step.is_pushed:
            edge.deliver()
            edge.commit_idle_log()
        _prepare(world, edge, step.fuse, step.meanwhile)
    world.join(edge)
    edge.fuse.clear()


def _prepare(world: World, edge: Edge, fuse: int, meanwhile: Meanwhile | None) -> None:
    """Lay a fuse, and plan what others do meanwhile."""
    edge.interrupts.clear()
    edge.fuse[:] = [fuse] if fuse else []
    if meanwhile is None:
        return
    act: Callable[[], bool]
    if meanwhile.is_deadlock:
        act = _deadlock
    elif meanwhile.writes:
        number = world.nodes.index(edge.dst)
        act = partial(world.write, number, meanwhile.writes)
    else:
        other = world.edges[meanwhile.edge % len(world.edges)]
        if other is edge or other.dst is not edge.dst:
            return
        act = partial(_delivered, other)
    edge.interrupts.plan(meanwhile.moment, act)


def _deadlock() -> bool:
    raise SinkBusyError("a deadlock")


def _delivered(edge: Edge) -> bool:
    edge.deliver(1)
    return True


# --- what is drawn ------------------------------------------------------------------------------

_numbers = st.integers(0, 5)
_values = st.none() | st.integers(1, 4)
_puts = st.builds(
    Write,
    st.sampled_from(["put", "put", "delete", "move", "again", "back", "same"]),
    st.sampled_from([0, 0, 1]),
    st.sampled_from([0, *SHARED_KEYS, SHARED_KEYS[0]]),
    _values,
)
own_puts = st.builds(
    Write, st.sampled_from(["put", "put", "delete"]), st.integers(0, 1), st.just(0), _values
)
_drifts = st.builds(Drift, _numbers, _puts)


_rarely = st.sampled_from([*[False] * 6, True])


def _writes(puts: st.SearchStrategy[Write]) -> st.SearchStrategy[tuple[Write, ...]]:
    return st.lists(puts, min_size=1, max_size=3).map(tuple)


def _meanwhiles(puts: st.SearchStrategy[Write]) -> st.SearchStrategy[Meanwhile | None]:
    writes = st.one_of(st.just(()), _writes(puts), _writes(puts))
    planned = st.builds(Meanwhile, st.sampled_from(MOMENTS), writes, st.integers(0, 5), _rarely)
    return st.none() | planned


def _parts(*kinds: str) -> st.SearchStrategy[Scope]:
    return st.builds(
        Scope,
        st.sampled_from([0, 0, 1]),
        st.sampled_from([None, None, None, *SHARED_KEYS]),
        st.sampled_from([None, None, *SHARED_KEYS[1:]]),
        st.sampled_from(kinds),
    )


ranges = _parts("range")
_intervals = st.builds(
    Scope, st.sampled_from([0, 0, 1]), st.just(1), st.integers(2, 4), st.just("interval")
)
scopes = st.one_of(ranges, _parts("listed"), _intervals)


def _fuses() -> st.SearchStrategy[int]:
    return st.sampled_from([*[0] * 20, *range(2, 12)])


def steps(
    puts: st.SearchStrategy[Write] = _puts,
    *,
    joins: st.SearchStrategy[Scope] | None = None,
    stops: bool = False,
) -> st.SearchStrategy[list[Step]]:
    """Return what draws schedules, in parts, because one list would be short in most cases.

    `stops`: streams leave tables alone, and take them back.
    """
    writes = st.builds(Writes, _numbers, _writes(puts))
    deliveries = st.builds(
        Deliver,
        _numbers,
        st.integers(1, 4),
        st.sampled_from([100, 100, 1, 2]),
        _fuses(),
        _meanwhiles(puts),
        st.sampled_from([*[0] * 8, 1, 2, 3]),
    )
    others: list[st.SearchStrategy[Step]] = [st.builds(Crash, _numbers), st.builds(Idle, _numbers)]
    if joins is not None:
        others = [st.one_of(*others), _drifts]
        rereads = st.builds(
            Reread,
            _numbers,
            joins,
            st.sampled_from([1, 2, 4, 4, 4, 4]),
            st.sampled_from([False, True, True]),
            fuse=_fuses(),
            meanwhile=_meanwhiles(puts),
        )
        others += [rereads] * 3
    if stops:
        others.append(st.builds(Stop, _numbers, st.sampled_from([0, 0, 1])))
        others += [
            st.builds(
                Alone,
                _numbers,
                st.sampled_from([0, 0, 1]),
                st.integers(1, 6),
                _fuses(),
                _meanwhiles(puts),
            )
        ] * 2
    step = st.one_of(writes, writes, deliveries, deliveries, deliveries, *others)
    return st.tuples(*[st.lists(step, min_size=4, max_size=12)] * 3).map(
        lambda parts: [*chain(*parts)]
    )


def starts(
    shape: str, *policies: tuple[str, str], rewrites: bool = False
) -> st.SearchStrategy[Start]:
    """Return what draws a start of one shape; `rewrites`: joins may write rows that are right."""
    return st.builds(
        Start,
        st.just(shape),
        st.sampled_from(policies),
        st.tuples(*[st.integers(0, 1)] * 3),
        st.builds(Reading, st.sampled_from([100, 100, 2]), st.booleans()),
        st.builds(
            Writing, st.booleans(), st.booleans(), st.booleans() if rewrites else st.just(False)
        ),
    )
