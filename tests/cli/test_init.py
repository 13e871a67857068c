"""`init` asks, writes a pipeline file that `check` accepts, and leaves nothing behind else."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from airflow_cdc_provider.cli.main import ExitCode, main
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from tests.pipeline.conftest import Shop
from tests.said import Said
from tests.servers.given import SqlServer
from tests.servers.throwaway import MariaDbServer

Init = Callable[..., Said]


class Terminal(io.StringIO):
    """Standard input on which a person has typed."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def init(shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Init:
    """Run `init` in a process that has the shop's DSNs; without answers there is no terminal.

    The file is named after its database: a sink that others use as well may know a `shop`.
    """
    shop.path.unlink()
    shop.path = shop.path.with_name(f"p_{shop.database}.yaml")
    for name, dsn in shop.environment.items():
        monkeypatch.setenv(name, dsn)

    def run(*words: str, answers: Sequence[str] | None = None) -> Said:
        capsys.readouterr()
        typed = "".join(f"{answer}\n" for answer in answers or ())
        monkeypatch.setattr("sys.stdin", io.StringIO() if answers is None else Terminal(typed))
        code = main(["init", *words])
        out, err = capsys.readouterr()
        return Said(int(code), out, err)

    return run


def by_flags(shop: Shop, *more: str) -> tuple[str, ...]:
    servers = ("--source", "SHOP_DSN", "--sink", "DR_DSN")
    return (str(shop.path), *servers, "--table", f"{shop.database}.*", *more)


def files(shop: Shop) -> list[str]:
    return [path.name for path in shop.path.parent.iterdir()]


def test_flags_alone_write_a_file_that_check_accepts(shop: Shop, init: Init) -> None:
    said = init(*by_flags(shop, "--mode", "bounded", "--verify", "never"))
    assert said.code == ExitCode.FINE, said.err + said.out
    model = load_pipeline(shop.path).model
    assert model.source.tables == (f"{shop.database}.*",)
    assert (model.source.dsn_env, model.sink.name) == ("SHOP_DSN", "DR_DSN")
    assert (model.stream.mode, model.verify) == ("bounded", "never")


def test_a_mariadb_source_is_written_and_checked_with_its_own_grants(
    shop: Shop,
    init: Init,
    mariadb_server: SqlServer,
    mariadb_database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mariadb_server.execute("CREATE TABLE a (id INT PRIMARY KEY)", database=mariadb_database)
    monkeypatch.setenv("MARIA_DSN", mariadb_server.dsn())
    words = ("--source", "MARIA_DSN", "--sink", "DR_DSN", "--table", f"{mariadb_database}.a")
    said = init(str(shop.path), *words)
    assert said.code == ExitCode.FINE, said.err + said.out
    assert "GRANT REPLICATION SLAVE, BINLOG MONITOR, SLAVE MONITOR ON *.*" in said.out


def test_a_route_by_flag_is_written_and_the_sinks_grants_are_of_where_it_leads(
    shop: Shop, init: Init
) -> None:
    said = init(*by_flags(shop, "--route", f"{shop.database}.*={shop.target}.*"))
    assert said.code == ExitCode.FINE, said.err + said.out
    model = load_pipeline(shop.path).model
    assert model.sink.route == {f"{shop.database}.*": f"{shop.target}.*"}
    lines = said.out.splitlines()
    (granted,) = [line for line in lines if line.startswith("GRANT") and "REFERENCES" in line]
    assert f"ON `{shop.target}`.* TO" in granted


@pytest.mark.parametrize(
    ("route", "why"),
    [
        ("nowhere", "'nowhere' is no route"),
        ("elsewhere.*=copy.*", "fits none of the tables that are copied"),
        ("a=copy.*", "'a' is not 'database.table'"),
    ],
)
def test_a_wrong_route_ends_it_with_the_reason_and_nothing_is_written(
    shop: Shop, init: Init, route: str, why: str
) -> None:
    said = init(*by_flags(shop, "--route", route))
    assert said.code == ExitCode.REFUSED
    assert why in said.err
    assert "--route" in said.err
    assert files(shop) == []


def test_a_state_by_flag_is_written(
    shop: Shop, init: Init, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATE_DSN", f"sqlite:///{shop.path.parent}/elsewhere.db")
    assert init(*by_flags(shop, "--state", "STATE_DSN")).code == ExitCode.FINE
    state = load_pipeline(shop.path).model.state
    assert state is not None
    assert state.dsn_env == "STATE_DSN"
    assert files(shop) == [shop.path.name]
    assert init(*by_flags(shop, "--yes", "--state", "NO_DSN")).code == ExitCode.REFUSED


def test_names_of_any_characters_and_regular_expressions_are_taken_where_it_asks(
    shop: Shop, init: Init
) -> None:
    shop.at_source("CREATE TABLE `a b, c=*` (id INT PRIMARY KEY)")
    shop.at_source("CREATE TABLE `none=*` (id INT)")
    tables = f"{shop.database}.`a b, c=*`  /{shop.database}/./(ord|n).*/"
    routes = (
        f"{shop.database}.`a b, c=*`={shop.target}.`to = all`,"
        f" /({shop.database})/./(o)[^=]*/={shop.target}.{{2}}_{{1}}"
    )
    answers = [tables, routes, "", "", "y"]
    said = init(str(shop.path), "--source", "SHOP_DSN", "--sink", "DR_DSN", answers=answers)
    assert said.code == ExitCode.FINE, said.err + said.out
    model = load_pipeline(shop.path).model
    first, second = f"{shop.database}.`a b, c=*`", f"/{shop.database}/./(ord|n).*/"
    assert model.source.tables == (first, second)
    assert model.source.exclude == (f"{shop.database}.`none=*`",)
    assert model.sink.route == {
        first: f"{shop.target}.`to = all`",
        f"/({shop.database})/./(o)[^=]*/": f"{shop.target}.{{2}}_{{1}}",
    }


@pytest.mark.mariadb
def test_patterns_and_routes_ignore_case_where_the_source_does(
    init: Init, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MariaDbServer({"lower_case_table_names": 1}) as server:
        server.execute("CREATE DATABASE Folded")
        server.execute("CREATE TABLE Folded.Orders (id INT PRIMARY KEY)")
        monkeypatch.setenv("MARIA_DSN", server.dsn())
        words = ("--source", "MARIA_DSN", "--sink", "DR_DSN", "--table", "FOLDED.orders")
        said = init(str(shop.path), *words, "--route", f"folded.*={shop.target}.*")
    assert said.code == ExitCode.FINE, said.err + said.out
    assert load_pipeline(shop.path).model.source.tables == ("FOLDED.orders",)
    assert f"ON `{shop.target}`.* TO" in said.out


def test_the_grants_of_both_accounts_are_printed(shop: Shop, init: Init) -> None:
    out = init(*by_flags(shop)).out
    assert "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO" in out
    assert f"GRANT SELECT ON `{shop.database}`.* TO" in out
    assert "DROP ON `airflow_cdc`.* TO" in out


def test_tables_without_a_key_are_left_out_with_the_reason(shop: Shop, init: Init) -> None:
    shop.at_source("CREATE TABLE keyless (a INT)")
    said = init(*by_flags(shop))
    assert said.code == ExitCode.FINE, said.err + said.out
    assert f"left out: {shop.database}.keyless has no primary key" in said.out
    assert load_pipeline(shop.path).model.source.exclude == (f"{shop.database}.keyless",)


def test_a_folder_as_the_sink_is_said_to_be_written_by_hand(shop: Shop, init: Init) -> None:
    said = init(str(shop.path), "--source", "SHOP_DSN", "--sink", "/data/lake", "--table", "a.b")
    assert said.code == ExitCode.REFUSED
    assert "for servers only: a folder or bucket is written into the file by hand" in said.err
    said = init(str(shop.path), "--source", "NO_DSN", "--sink", "DR_DSN", "--table", "a.b")
    assert "folder" not in said.err
    assert files(shop) == []


def test_a_wrong_answer_is_asked_again_with_the_reason(shop: Shop, init: Init) -> None:
    every = f"{shop.database}.*"
    servers = ["NO_DSN", "SHOP_DSN", "DR_DSN"]
    routes = ["nowhere.*=copy.*", f"{every}=dr_{every}"]
    answers = [*servers, "9999", every, *routes, "often", "bounded", ""]
    said = init(str(shop.path), answers=answers)
    assert said.code == ExitCode.FINE, said.err + said.out
    assert "no connection 'NO_DSN'" in said.out
    assert "9999 is not among the numbers" in said.out
    assert "the route 'nowhere.*' fits none of the tables" in said.out
    assert "'often' is no mode" in said.out
    model = load_pipeline(shop.path).model
    assert model.stream.mode == "bounded"
    assert model.sink.route == {every: f"dr_{every}"}
    assert f"ON `dr_{shop.database}`.* TO" in said.out


@pytest.mark.parametrize("flag", ["--source", "--sink", "--table"])
def test_without_a_terminal_what_is_missing_is_named_by_its_flag(
    shop: Shop, init: Init, flag: str
) -> None:
    words = list(by_flags(shop))
    at = words.index(flag)
    said = init(*words[:at], *words[at + 2 :])
    assert said.code == ExitCode.REFUSED
    assert f"{flag} is missing" in said.err
    assert files(shop) == []


def test_a_file_is_overwritten_by_a_yes_only(shop: Shop, init: Init) -> None:
    shop.path.write_text("mine")
    assert init(*by_flags(shop)).code == ExitCode.REFUSED
    assert init(*by_flags(shop), answers=["n"]).code == ExitCode.REFUSED
    assert shop.path.read_text() == "mine"
    assert init(*by_flags(shop, "--yes")).code == ExitCode.FINE
    assert load_pipeline(shop.path).model.stream.mode == "continuous"


def test_a_server_that_refuses_is_told_at_once_and_nothing_is_written(
    shop: Shop, init: Init, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DR_DSN", "mysql://nobody:wrong@127.0.0.1:1/")
    said = init(*by_flags(shop))
    assert said.code != ExitCode.FINE
    assert "127.0.0.1:1" in said.err
    assert files(shop) == []


def test_an_interrupt_leaves_nothing_behind(
    shop: Shop, init: Init, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_question: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.input", interrupted)
    words = (str(Path(shop.path)), "--source", "SHOP_DSN", "--sink", "DR_DSN")
    assert init(*words, answers=[]).code == ExitCode.INTERRUPTED
    assert files(shop) == []


def test_a_server_that_does_not_answer_is_told_and_another_is_asked_for(
    shop: Shop, init: Init, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOWN_DSN", "mysql://nobody:wrong@127.0.0.1:1/")
    answers = ["DOWN_DSN", "SHOP_DSN", "DR_DSN", f"{shop.database}.*", "", "", ""]
    said = init(str(shop.path), answers=answers)
    assert said.code == ExitCode.FINE, said.err + said.out
    assert "127.0.0.1" in said.out


def test_an_end_of_input_is_no_yes(shop: Shop, init: Init) -> None:
    shop.path.write_text("mine")
    assert init(*by_flags(shop), answers=[]).code == ExitCode.REFUSED
    assert shop.path.read_text() == "mine"
