"""What a run does by itself where the file, or the source, has other tables than the plan."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import (
    CdcError,
    NotConsistentError,
    PausedError,
    PipelineFileError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.pipeline.run import Run, give_back
from airflow_cdc_provider.pipeline.steps import converging, new_table_watch
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.converging import run_continuously, run_until_caught_up
from airflow_cdc_provider.pipeline.steps.pausing import require_wanted
from airflow_cdc_provider.pipeline.steps.plan_sync import is_copy_of
from airflow_cdc_provider.pipeline.steps.planning import plan, preview
from airflow_cdc_provider.pipeline.steps.reset_drop import reset
from airflow_cdc_provider.pipeline.steps.table_membership import add_tables, reset_tables
from airflow_cdc_provider.pipeline.steps.verifying import verify
from tests.pipeline.conftest import Shop
from tests.pipeline.new_table_watch import WRONG
from tests.pipeline.shop_tables import at_sink, at_source, exclude, later
from tests.pipeline.synced_shops import continuous, copied, options, synced, writing
from tests.servers.given import SqlServer
from tests.servers.patience import wait_until
from tests.servers.proxy import NONE, CuttingProxy, Fault


@pytest.fixture(params=["mysql", "mariadb"])
def either(request: pytest.FixtureRequest, shop: Shop) -> Shop:
    """Return a shop whose source is of one family or the other."""
    if request.param == "mariadb":
        server: SqlServer = request.getfixturevalue("mariadb_server")
        database: str = request.getfixturevalue("mariadb_database")
        text = shop.path.read_text().replace(shop.database, database)
        shop.source, shop.database = server, database
        shop.environment["SHOP_DSN"] = server.dsn()
        shop.path.write_text(text)
        shop.at_source("CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(40), code INT)")
        shop.at_source("INSERT INTO orders VALUES (1, 'one', 10), (2, 'two', 20)")
    return shop


def pick(shop: Shop, *tables: str) -> None:
    """Have the file name single tables."""
    lines = shop.path.read_text().splitlines()
    names = ", ".join(f'"{shop.database}.{table}"' for table in tables)
    lines[3] = f"  tables: [{names}]"
    shop.path.write_text("\n".join(lines) + "\n")


def only_at_sink(shop: Shop) -> None:
    """Mark a row, such that it shows whether it was read again."""
    shop.sink.execute("UPDATE orders SET note = 'only here' WHERE id = 1", database=shop.target)


def test_a_table_that_is_new_in_the_file_is_added_by_the_run(either: Shop) -> None:
    shop = either
    pick(shop, "orders")
    synced(shop)
    later(shop)
    only_at_sink(shop)
    assert copied(shop) == {"orders"}
    pick(shop, "orders", "later")
    (said,) = (each for each in check(shop.run()).findings if each.code == "table.not_in_plan")
    assert said.why == "it is not copied yet"
    assert said.fix.startswith("`run` adds it behind its preflight, if nothing speaks against it")
    (line,) = synced(shop).plan.changed
    assert line.startswith(f"added: {shop.database}.later;")
    assert at_sink(shop, "later") == at_source(shop, "later")
    assert at_sink(shop, "orders")[0][1] == "only here"
    shop.at_source("DELETE FROM later WHERE id = 2")
    assert synced(shop).plan.changed == ()
    assert at_sink(shop, "later") == at_source(shop, "later")


def test_a_table_that_is_picked_before_the_hand_off_is_added_behind_it(shop: Shop) -> None:
    pick(shop, "orders")
    plan(shop.run())
    later(shop)
    pick(shop, "orders", "later")
    assert plan(shop.run()).not_copied == (f"{shop.database}.later",)
    done = synced(shop)
    assert (len(done.plan.changed), done.plan.not_copied) == (1, ())
    synced(shop)
    assert at_sink(shop, "later") == at_source(shop, "later")


def test_a_table_that_is_gone_from_the_file_is_removed_and_its_rows_stay(either: Shop) -> None:
    shop = either
    table = later(shop)
    synced(shop)
    before = at_sink(shop, "later")
    exclude(shop, table)
    assert check(shop.run()).blocks == ()
    seen = preview(shop.run())
    assert (seen.removes, seen.gone) == ((str(table),), ())
    assert verify(shop.run(), settle_s=0).equal
    shop.at_source("DELETE FROM later")
    shop.at_source("INSERT INTO orders VALUES (9, 'nine', 90)")
    (line,) = synced(shop).plan.changed
    assert f"removed: {table}" in line
    assert f"the rows in {shop.target}.later stay" in line
    assert (at_sink(shop, "later"), len(before)) == (before, 3)
    assert at_sink(shop, "orders") == at_source(shop, "orders")
    assert copied(shop) == {"orders"}


def test_a_file_that_picks_none_of_the_plan_s_tables_is_refused(shop: Shop) -> None:
    synced(shop)
    later(shop)
    pick(shop, "later")
    with pytest.raises(PipelineFileError, match="does not pick it any more"):
        synced(shop)
    assert copied(shop) == {"orders"}


def test_a_table_that_comes_at_the_source_is_added_or_told_as_the_file_says(either: Shop) -> None:
    shop = either
    was = shop.path.read_text()
    shop.path.write_text(was.replace("sink:", "  new_tables: tell\nsink:", 1))
    synced(shop)
    later(shop)
    told = synced(shop)
    assert (told.plan.changed, told.plan.not_copied) == ((), (f"{shop.database}.later",))
    shop.path.write_text(was)
    assert len(synced(shop).plan.changed) == 1
    assert at_sink(shop, "later") == at_source(shop, "later")


@pytest.mark.parametrize("make", WRONG, ids=lambda make: str(make.__name__))
def test_a_later_table_that_cannot_be_added_is_told_and_the_others_are_added(
    shop: Shop, make: Callable[[Shop], None]
) -> None:
    synced(shop)
    make(shop)
    later(shop, "fit")
    done = synced(shop)
    assert done.plan.not_copied == (f"{shop.database}.later",)
    assert copied(shop) == {"orders", "fit"}
    run = shop.run()
    said = [event.text for event in run.store.events(run.name) if "is not added" in event.text]
    assert len(said) == 1, said
    synced(shop)
    assert at_sink(shop, "fit") == at_source(shop, "fit")
    again = [event.text for event in run.store.events(run.name) if "is not added" in event.text]
    assert again == said


def test_a_table_of_the_file_that_cannot_be_added_is_told_and_stops_nothing(either: Shop) -> None:
    shop = either
    later(shop)
    pick(shop, "orders", "later")
    synced(shop)
    pick(shop, "orders")
    synced(shop)
    shop.at_source("INSERT INTO orders VALUES (77, 'late', 7)")
    pick(shop, "orders", "later")
    done = synced(shop)
    assert done.plan.not_copied == (f"{shop.database}.later",)
    assert at_sink(shop, "orders") == at_source(shop, "orders")
    run = shop.run()
    assert run.store.not_copied(run.name) == (TableId(shop.database, "later"),)
    (said,) = [event.text for event in run.store.events(run.name) if "is not added" in event.text]
    assert said.startswith(f"{shop.database}.later was added to the file and is not added: ")
    assert said.endswith("holds rows, and nothing says that this pipeline wrote them")
    shop.sink.execute("DELETE FROM later", database=shop.target)
    assert len(synced(shop).plan.changed) == 1
    assert at_sink(shop, "later") == at_source(shop, "later")


def mask_notes(shop: Shop) -> None:
    """Have the notes of all tables masked."""
    masked = f'tables:\n  "{shop.database}.*":\n    columns: {{mask: {{note: null}}}}\n'
    shop.path.write_text(shop.path.read_text() + masked)


def test_a_later_table_that_its_section_does_not_fit_is_told_and_the_others_flow(
    shop: Shop,
) -> None:
    mask_notes(shop)
    synced(shop)
    shop.at_source("CREATE TABLE odd (id INT PRIMARY KEY, notes VARCHAR(20))")
    shop.at_source("INSERT INTO odd VALUES (1, 'secret')")
    shop.at_source("INSERT INTO orders VALUES (9, 'nine', 90)")
    done = synced(shop)
    assert done.plan.not_copied == (f"{shop.database}.odd",)
    assert shop.sink_rows("SELECT note FROM orders WHERE id = 9") == [(None,)]
    run = shop.run()
    (said,) = [event.text for event in run.store.events(run.name) if "is not added" in event.text]
    assert (
        said == f"{shop.database}.odd came later and is not added: {shop.database}.odd has no "
        "column note that is copied"
    )
    report = check(run)
    assert not report.blocks
    (found,) = (each for each in report.findings if each.code == "table.columns")
    assert (found.subject, found.why) == (f"{shop.database}.odd", "it is not copied")
    with pytest.raises(PipelineFileError, match="odd has no column note that is copied"):
        add_tables(run, [TableId(shop.database, "odd")])
    assert copied(shop) == {"orders"}
    shop.at_source("ALTER TABLE odd RENAME COLUMN notes TO note")
    synced(shop)
    assert shop.sink_rows("SELECT * FROM odd") == [(1, None)]


@pytest.mark.parametrize("is_continuous", [False, True])
def test_a_masked_table_that_gets_another_name_is_not_copied_unmasked(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, *, is_continuous: bool
) -> None:
    monkeypatch.setattr(new_table_watch, "LOOK_EVERY_S", 0.5)
    masked = f'  "{shop.database}.orders": {{columns: {{mask: {{code: null}}}}}}\n'
    masked += f'  "{shop.database}.some": {{where: "n > 1"}}\n'
    shop.path.write_text(f"{shop.path.read_text()}tables:\n{masked}")
    shop.at_source("CREATE TABLE some (id INT PRIMARY KEY, n INT)")
    later(shop, "other")
    synced(shop)

    def change() -> None:
        shop.at_source("CREATE TABLE copied (PRIMARY KEY (id)) AS SELECT id, code FROM orders")
        shop.at_source("CREATE TABLE less LIKE some")
        for statement in ("orders ADD COLUMN z INT", "orders DROP COLUMN note", "some ADD z INT"):
            shop.at_source(f"ALTER TABLE {statement}")
        shop.at_source("RENAME TABLE orders TO former")
        later(shop, "fit")

    if is_continuous:
        with continuous(shop, []) as run:
            wait_until(lambda: run.store.ensure(run.name).phase.value == "streaming")
            change()
            wait_until(lambda: {"fit"} <= copied(shop))
    else:
        change()
    for _ in range(2):
        synced(shop)
    run = shop.run()
    assert copied(shop) - {"orders"} == {"other", "fit", "some"}
    held = [f"{shop.database}.{name}" for name in ("copied", "former", "less")]
    said = [event.text for event in run.store.events(run.name) if "is not added" in event.text]
    assert {each.split()[0] for each in said} == {*held}
    found = {f.subject: f.observed for f in check(run).findings if f.code == "table.shown"}
    section = f"{shop.database}.orders"
    assert list(found) == held
    assert found[held[0]].startswith(f"code is masked or left out by {section}, and no")
    assert found[held[2]].startswith(f"it has all columns of {shop.database}.some, which")
    assert shop.sink_rows("SHOW TABLES LIKE 'former'") == []
    named = f'  "{shop.database}.copied": {{}}\n'
    shop.path.write_text(shop.path.read_text() + named)
    synced(shop)
    assert at_sink(shop, "copied") == at_source(shop, "copied")


def test_where_the_sink_was_lost_a_table_that_its_section_does_not_fit_is_not_read(
    shop: Shop,
) -> None:
    mask_notes(shop)
    run = shop.run()
    synced(shop)
    shop.at_source("ALTER TABLE orders RENAME COLUMN note TO notes")
    forget(shop, run)
    with pytest.raises(PipelineFileError, match="orders has no column note that is copied"):
        synced(shop)
    assert shop.sink_rows("SHOW TABLES LIKE 'orders'") == []


def test_copies_of_schema_change_tools_are_left_alone(shop: Shop) -> None:
    synced(shop)
    for name in ("_orders_gho", "_orders_new", "__orders_new", "_orders_20260101120000_del"):
        shop.at_source(f"CREATE TABLE {name} LIKE orders")
    assert synced(shop).plan.changed == ()
    planned = {TableId("a", "orders")}
    assert is_copy_of(TableId("a", "_orders_ghc"), planned)
    assert not is_copy_of(TableId("a", "_other_gho"), planned)
    assert not is_copy_of(TableId("b", "_orders_gho"), planned)
    assert not is_copy_of(TableId("a", "orders_new"), planned)


def test_a_crash_between_ledger_and_state_is_mended_by_the_next_run(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced(shop)
    later(shop)
    run = shop.run()

    def crash(*_: object, **__: object) -> None:
        raise CdcError("the state store is gone")

    with monkeypatch.context() as patch:
        patch.setattr(type(run.store), "change_plan", crash)
        with pytest.raises(CdcError, match="is gone"):
            synced(shop)
    shop.at_source("INSERT INTO later VALUES (4, 'four')")
    synced(shop)
    assert at_sink(shop, "later") == at_source(shop, "later")


def test_a_changed_route_of_one_table_is_a_reset_of_that_table(shop: Shop) -> None:
    table = later(shop)
    synced(shop)
    only_at_sink(shop)
    moved = f'route: {{"{table}": "{shop.target}.moved", '
    shop.path.write_text(shop.path.read_text().replace("route: {", moved))
    with pytest.raises(PipelineFileError, match=rf"`reset` it with --table {table}"):
        synced(shop)
    run = shop.run()
    assert reset_tables(run, [table]) == (table,)
    give_back(run)
    shop.at_source("INSERT INTO later VALUES (4, 'four')")
    synced(shop)
    assert at_sink(shop, "moved") == at_source(shop, "later")
    assert len(at_sink(shop, "later")) == 3
    assert at_sink(shop, "orders")[0][1] == "only here"


def test_tables_that_come_while_the_stream_runs_lose_nothing(
    either: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are created and written to at once, and go on being written to."""
    shop = either
    monkeypatch.setattr(new_table_watch, "LOOK_EVERY_S", 0.5)
    synced(shop)
    said: list[str] = []
    with continuous(shop, said) as run, writing(shop, ("one", "two")):
        wait_until(lambda: {"one", "two"} <= copied(shop))
        wait_until(lambda: _is_read(run))
    assert said
    synced(shop)
    for table in ("one", "two", "orders"):
        assert at_sink(shop, table) == at_source(shop, table)


@pytest.mark.parametrize("calls", [0, 1])
def test_a_pause_between_two_streams_ends_the_run_as_one_in_a_stream_does(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    monkeypatch.setattr(new_table_watch, "LOOK_EVERY_S", 0.5)
    synced(shop)
    seen = count()

    def paused_before(run: Run, **more: Any) -> Any:
        # the first plan is the run's own, the second follows the stream that ended for `later`
        number = next(seen)
        if number == 1 and not calls:
            run.store.want(run.name, Wanted.STOP)
        planned = plan(run, **more)
        if number == 1 and calls:
            run.store.want(run.name, Wanted.STOP)
        return planned

    monkeypatch.setattr(converging, "plan", paused_before)
    with continuous(shop, []) as run:
        wait_until(lambda: run.store.ensure(run.name).phase.value == "streaming")
        later(shop)
        wait_until(lambda: run.store.ensure(run.name).wanted is Wanted.STOP)
    synced(shop)
    assert at_sink(shop, "later") == at_source(shop, "later")


@pytest.mark.parametrize("bounded", [False, True])
def test_a_pause_while_a_run_plans_a_later_table_ends_it_as_one_in_a_stream_does(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, *, bounded: bool
) -> None:
    synced(shop)
    later(shop)

    def paused_while_planned(run: Run, **more: Any) -> Any:
        planned = plan(run, **more)
        run.store.want(run.name, Wanted.STOP)
        return planned

    run = shop.run()
    with monkeypatch.context() as patched:
        patched.setattr(converging, "plan", paused_while_planned)
        if bounded:  # it never ends well while a table is not consistent
            with pytest.raises(NotConsistentError, match="later"):
                run_until_caught_up(run, options(shop))
        else:
            done = run_continuously(run, options(shop))
            assert done.stream.outcome == "stopped"
            assert [str(table) for table in done.inconsistent] == [f"{shop.database}.later"]
    with pytest.raises(PausedError):  # as one that was paused before it began
        run_until_caught_up(run, options(shop))
    run.store.want(run.name, Wanted.RUN)
    synced(shop)
    assert at_sink(shop, "later") == at_source(shop, "later")


@pytest.mark.parametrize("step", ["before", "behind"])
def test_a_pause_while_a_bounded_run_plans_nothing_new_ends_it_well(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    synced(shop)

    def paused(run: Run, **more: Any) -> Any:
        if step == "before":
            run.store.want(run.name, Wanted.STOP)
            require_wanted(run)  # as where tables are removed, to which the stream goes on first
        planned = plan(run, **more)
        run.store.want(run.name, Wanted.STOP)
        return planned

    monkeypatch.setattr(converging, "plan", paused)
    done = run_until_caught_up(shop.run(), options(shop))
    assert (done.stream.outcome, done.inconsistent) == ("stopped", ())


def test_a_table_that_comes_or_gets_a_name_that_is_picked_is_added_at_once(
    either: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looks now and then here: the log says so."""
    shop = either
    monkeypatch.setattr(new_table_watch, "LOOK_EVERY_S", 3600.0)
    synced(shop)
    elsewhere = f"{shop.database}x"
    shop.source.execute(f"CREATE DATABASE {elsewhere}")
    shop.source.execute(f"CREATE TABLE {elsewhere}.away (id INT PRIMARY KEY)")
    with continuous(shop, []) as run:
        wait_until(lambda: run.store.ensure(run.name).phase.value == "streaming")
        shop.at_source("CREATE TABLE one (id INT PRIMARY KEY)")
        wait_until(lambda: {"one"} <= copied(shop))
        wait_until(lambda: run.store.ensure(run.name).phase.value == "streaming")
        shop.at_source(f"RENAME TABLE {elsewhere}.away TO two")
        wait_until(lambda: {"one", "two"} <= copied(shop))
    shop.source.execute(f"DROP DATABASE {elsewhere}")


def _is_read(run: Run) -> bool:
    stream = run.store.stream(run.name)
    asked = run.store.requests(run.name)
    return bool(asked) and stream is not None and not any(r.status.is_open for r in asked)


def test_a_table_that_comes_while_the_stream_runs_is_told_where_the_file_says_so(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_table_watch, "LOOK_EVERY_S", 0.5)
    shop.path.write_text(shop.path.read_text().replace("sink:", "  new_tables: tell\nsink:", 1))
    synced(shop)
    with continuous(shop, []) as run:
        wait_until(lambda: run.store.ensure(run.name).phase.value == "streaming")
        table = later(shop)
        wait_until(lambda: run.store.not_copied(run.name) == (table,))
    assert copied(shop) == {"orders"}


@pytest.mark.parametrize("side", ["source", "sink"])
def test_a_server_that_goes_away_between_two_streams_is_waited_for(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    monkeypatch.setattr(new_table_watch, "LOOK_EVERY_S", 0.5)
    server = shop.source if side == "source" else shop.sink
    tries = count()
    with CuttingProxy(server.port) as way:
        for name, dsn in list(shop.environment.items()):
            if dsn == server.dsn():
                shop.environment[name] = dsn.replace(f":{server.port}", f":{way.port}")
        synced(shop)

        def cut_off(run: Run, **more: Any) -> Any:
            # the first plan is the run's own, the second follows the stream that ended for `later`
            number = next(tries)
            way.fault = Fault(refuse=True) if number in (1, 2) else NONE
            way.cut()
            return plan(run, **more)

        monkeypatch.setattr(converging, "plan", cut_off)
        with continuous(shop, []) as run:
            wait_until(lambda: run.store.ensure(run.name).phase.value == "streaming")
            later(shop)
            wait_until(lambda: "later" in copied(shop))
            wait_until(lambda: _is_read(run))
        (over,) = [e.text for e in run.store.events(run.name) if e.text.startswith("over, after")]
        assert next(tries) == 4, over
        synced(shop)
    assert at_sink(shop, "later") == at_source(shop, "later")


def test_where_the_sink_was_lost_no_table_comes_that_shows_what_is_masked(shop: Shop) -> None:
    masked = f'  "{shop.database}.orders": {{columns: {{exclude: [code]}}}}\n'
    masked += f'  "{shop.database}.*": {{metadata: {{operation: _op}}}}\n'
    shop.path.write_text(f"{shop.path.read_text()}tables:\n{masked}")
    run = shop.run()
    synced(shop)
    shop.at_source("CREATE TABLE copied (PRIMARY KEY (id)) AS SELECT id, code FROM orders")
    later(shop)
    forget(shop, run)
    synced(shop)
    assert copied(shop) == {"orders", "later"}
    reset(run)
    give_back(run)
    synced(shop)
    assert copied(shop) == {"orders", "later"}


def forget(shop: Shop, run: Run) -> None:
    """Have the sink lose the pipeline's ledger and rows."""
    mine = f"pipeline = '{run.name}'"
    for table in ("pipeline", "stream", "stream_table", "target", "finished_split"):
        shop.sink.execute(f"DELETE FROM airflow_cdc.{table} WHERE {mine}")
    shop.sink.execute("DROP TABLE orders", database=shop.target)


def test_where_the_sink_was_lost_all_is_read_again_and_later_tables_too(shop: Shop) -> None:
    run = shop.run()
    synced(shop)
    later(shop)
    forget(shop, run)
    done = synced(shop)
    assert (done.plan.is_new, done.plan.changed) == (True, ())
    for name in ("orders", "later"):
        assert at_sink(shop, name) == at_source(shop, name)
