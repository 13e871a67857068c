"""A source that lost commits: refused by name, until a person takes its history."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from airflow_cdc_provider.core.errors import CdcError, RefusedError, SourceIdentityError
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.records import NoteKind
from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
from airflow_cdc_provider.pipeline.steps.overrides import Override, accept_source, source_to_accept
from tests.pipeline.altered_tables import catch_up
from tests.pipeline.conftest import FILE, Shop
from tests.servers.families import FAMILIES
from tests.servers.given import SqlServer
from tests.servers.replication import is_mariadb, pair_of, part, server_of

TABLES = ("orders", "others", "thirds")


@contextmanager
def copied(source: SqlServer, sink: SqlServer, target: str, folder: Path) -> Iterator[Shop]:
    """Copy three tables of a server, once."""
    source.execute("CREATE DATABASE shop")
    source.execute("CREATE DATABASE elsewhere")
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)", database="elsewhere")
    for table in TABLES:
        source.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", database="shop")
        source.execute(f"INSERT INTO {table} VALUES (1, 1), (2, 2)", database="shop")
    path = folder / "shop.yaml"
    path.write_text(FILE.format(name=f"accepts_{target}", source="shop", sink=target))
    environment = {"SHOP_DSN": source.dsn(), "DR_DSN": sink.dsn()}
    with ExitStack() as stack:
        shop = Shop(source, sink, "shop", target, path, environment, stack)
        catch_up(shop)
        yield shop


def fail_over(shop: Shop, to: SqlServer) -> None:
    shop.source = to
    shop.environment["SHOP_DSN"] = to.dsn()


def equal_tables(shop: Shop) -> set[str]:
    ask = "SELECT * FROM {} ORDER BY id"
    return {
        table
        for table in TABLES
        if shop.sink_rows(ask.format(table))
        == list(shop.source.execute(ask.format(table), database="shop"))
    }


def names(done: Override) -> list[str]:
    return [table.table for table in done.tables]


@pytest.fixture
def target(mysql_sink: SqlServer, fresh_database: object) -> str:
    name: str = fresh_database(mysql_sink)  # type: ignore[operator]
    return name


@FAMILIES
def test_after_a_failover_that_lost_commits_only_what_they_changed_is_read_again(
    family: str, mysql_sink: SqlServer, target: str, tmp_path: Path
) -> None:
    with (
        pair_of(family) as (primary, replica),
        copied(primary, mysql_sink, target, tmp_path) as shop,
    ):
        shop.at_source("UPDATE others SET v = 10 WHERE id = 1")
        catch_up(shop)
        part(replica, primary)
        shop.at_source("UPDATE orders SET v = 99 WHERE id = 1")
        shop.at_source("INSERT INTO orders VALUES (9, 9)")
        catch_up(shop)
        assert shop.sink_rows("SELECT v FROM orders WHERE id = 1") == [(99,)]
        fail_over(shop, replica)
        shop.at_source("INSERT INTO others VALUES (5, 5)")
        shop.at_source("UPDATE orders SET v = 7 WHERE id = 2")
        with pytest.raises(SourceIdentityError, match="does not have transactions") as refused:
            catch_up(shop)
        assert "`accept`" in refused.value.remedy
        assert "may be in the sink" in refused.value.risk
        assert names(source_to_accept(shop.run())) == ["orders"]
        with pytest.raises(RefusedError, match="no reason"):
            accept_source(shop.run(), reason="")
        accepted = accept_source(shop.run(), reason="the primary burnt down", by="a person")
        assert names(accepted) == ["orders"]
        run = catch_up(shop)
        assert equal_tables(shop) == set(TABLES)
        shop.at_source("DELETE FROM thirds WHERE id = 1")
        shop.at_source("UPDATE orders SET v = 8 WHERE id = 2")
        catch_up(shop)
        assert equal_tables(shop) == set(TABLES)
        assert {state.phase for state in run.store.tables(run.name)} == {TablePhase.CONSISTENT}
        requests = run.store.requests(run.name)
        assert [each.scope.tables[0].table for each in requests] == ["orders"]
        note = run.store.note(run.name, NoteKind.OVERRIDES)
        assert note is not None
        assert note.form["made"][0]["reason"] == "the primary burnt down"
        with pytest.raises(RefusedError, match="has all that was read"):
            accept_source(shop.run(), reason="again")


@FAMILIES
def test_lost_commits_that_changed_nothing_that_is_copied_have_nothing_read_again(
    family: str, mysql_sink: SqlServer, target: str, tmp_path: Path
) -> None:
    with (
        pair_of(family) as (primary, replica),
        copied(primary, mysql_sink, target, tmp_path) as shop,
    ):
        part(replica, primary)
        primary.execute("INSERT INTO t VALUES (1)", database="elsewhere")
        catch_up(shop)
        fail_over(shop, replica)
        shop.at_source("INSERT INTO others VALUES (5, 5)")
        with pytest.raises(SourceIdentityError):
            catch_up(shop)
        assert names(accept_source(shop.run(), reason="test")) == []
        run = shop.run()  # how much log there is since is not known, so Spark reads it
        run_until_caught_up(run, SparkOptions(log_folder=tmp_path / "logs"))
        assert equal_tables(shop) == set(TABLES)
        assert run.store.requests(run.name) == ()


@FAMILIES
def test_where_it_cannot_be_told_what_was_lost_all_tables_are_read_again(
    family: str, mysql_sink: SqlServer, target: str, tmp_path: Path
) -> None:
    with server_of(family) as source, copied(source, mysql_sink, target, tmp_path) as shop:
        shop.at_source("UPDATE orders SET v = 99 WHERE id = 1")
        catch_up(shop)
        source.execute("RESET MASTER" if is_mariadb(source) else "RESET BINARY LOGS AND GTIDS")
        shop.at_source("UPDATE others SET v = 5 WHERE id = 1")
        shop.at_source("UPDATE thirds SET v = 6 WHERE id = 1")
        with pytest.raises(CdcError):
            catch_up(shop)
        assert names(accept_source(shop.run(), reason="test")) == list(TABLES)
        shop.at_source("INSERT INTO orders VALUES (3, 3)")
        catch_up(shop)
        assert equal_tables(shop) == set(TABLES)
        shop.at_source("INSERT INTO others VALUES (3, 3)")
        catch_up(shop)
        assert equal_tables(shop) == set(TABLES)


@pytest.mark.parametrize("step", ["ledger", "state"])
@pytest.mark.sample(1)
def test_whoever_is_killed_while_a_history_is_taken_is_followed_by_one_that_ends_equal(
    step: str,
    mysql_sink: SqlServer,
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        pair_of("mysql") as (primary, replica),
        copied(primary, mysql_sink, target, tmp_path) as shop,
    ):
        part(replica, primary)
        shop.at_source("UPDATE orders SET v = 99 WHERE id = 1")
        catch_up(shop)
        fail_over(shop, replica)
        shop.at_source("INSERT INTO others VALUES (5, 5)")
        run = shop.run()

        def killed(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        name = "go_on_from" if step == "ledger" else "store_hand_off"
        kind = (
            "airflow_cdc_provider.engine.ledger.ledger.Ledger"
            if step == "ledger"
            else "airflow_cdc_provider.state.store.SqlStateStore"
        )
        with monkeypatch.context() as patched:
            patched.setattr(f"{kind}.{name}", killed)
            with pytest.raises(KeyboardInterrupt):
                accept_source(run, reason="test")
        if step == "ledger":
            with pytest.raises(SourceIdentityError):
                catch_up(shop)
            accept_source(run, reason="once more")
        catch_up(shop)
        assert equal_tables(shop) == set(TABLES)
