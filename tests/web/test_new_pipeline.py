"""The form of a new pipeline: what its routes answer, to whom, and what is in no answer."""

from __future__ import annotations

import json
import secrets
import time
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from airflow_cdc_provider.hooks import new_pipeline
from airflow_cdc_provider.hooks.bounded_looks import BoundedLooks
from airflow_cdc_provider.pipeline.default_state import airflow_state_folder
from airflow_cdc_provider.pipeline.file.loader import parse_pipeline
from tests.servers.accounts import least_privileged, sink_account, source_account
from tests.servers.given import SqlServer
from tests.web.new_pipelines import Choices, hung_server
from tests.web.shop import ROLES, Page

LOOKS = ("tables", "file", "rights", "check")


def bodies(choices: Choices, **changed: Any) -> dict[str, dict[str, Any]]:
    """Return a body for each look."""
    answers = choices.answers(**changed)
    return {
        "tables": {"source": answers["source"]},
        "file": answers,
        "rights": {"conn_id": answers["source"], "part": "source", "databases": ["shop"]},
        "check": answers,
    }


def asked(page: Page, look: str, body: dict[str, Any]) -> Any:
    answer = page.post(f"/api/new/{look}", body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_connections_to_choose_from_are_those_of_the_right_types(
    page: Page, choices: Choices
) -> None:
    choices.add("new_any", "mysql://u:p@127.0.0.1/", "mysql")
    choices.add("new_http", "mysql://u:p@127.0.0.1/", "http")
    form = page.get("/api/new").json()
    assert form["may_look"] is True
    parts = {each["conn_id"]: each["parts"] for each in form["connections"]}
    assert parts["new_source"] == ["source"]
    assert parts["new_sink"] == ["sink"]
    assert parts["new_any"] == ["source", "sink", "state"]
    assert "new_http" not in parts
    assert {key for each in form["connections"] for key in each} == {
        "conn_id",
        "conn_type",
        "parts",
    }


def test_tables_have_sizes_and_those_without_a_key_say_why_they_are_left_out(
    page: Page, choices: Choices
) -> None:
    form = asked(page, "tables", {"source": "new_source"})
    assert form["facts"][0].startswith("MySQL ")
    found = {each["table"]: each for each in form["tables"] if each["database"] == choices.database}
    assert set(found) == {
        f"{choices.database}.{name}" for name in ("orders", "customers", "keyless")
    }
    assert found[f"{choices.database}.orders"]["left_out"] == ""
    assert found[f"{choices.database}.orders"]["bytes"] > 0
    assert "no primary key" in found[f"{choices.database}.keyless"]["left_out"]


def test_the_file_is_one_that_the_loader_reads_and_check_accepts(
    page: Page, choices: Choices
) -> None:
    form = asked(page, "file", choices.answers())
    model = parse_pipeline(form["text"]).model
    assert (form["file"], str(model.name)) == ("pipelines/new_shop.yaml", "new_shop")
    assert (model.source.conn_id, model.sink.name) == ("new_source", "new_sink")
    assert model.sink.route == {f"{choices.database}.*": f"{choices.target}.*"}
    assert (model.stream.mode, model.verify, model.state) == ("bounded", "always", None)
    assert model.source.exclude == (f"{choices.database}.keyless",)
    assert form["exclude"] == [f"{choices.database}.keyless"]
    assert form["databases"] == {"source": [choices.database], "sink": [choices.target]}
    assert {
        "source": f"{choices.database}.orders",
        "sink": f"{choices.target}.orders",
    } in form["tables"]
    assert "cdc_dags(" in form["dag_file"]
    checked = asked(page, "check", choices.answers(exclude=form["exclude"]))
    assert checked["refused"] is False, checked
    assert len(checked["tables"]) == 2


def test_a_name_that_a_pipeline_has_already_is_not_fit(page: Page, choices: Choices) -> None:
    row = page.get("/api/pipelines").json()["pipelines"][0]
    checked = asked(page, "check", choices.answers(name=row["pipeline"]))
    assert checked["refused"] is True
    (finding,) = checked["findings"]
    assert (finding["code"], finding["level"]) == ("pipeline.name_in_use", "block")
    assert f"the DAG {row['dag_id']} runs one, from " in finding["observed"]
    assert finding["fix"] == "give it another name"


def test_the_draft_names_its_state_as_it_names_its_servers_and_where_the_keys_are_explained(
    page: Page, choices: Choices
) -> None:
    text = asked(page, "file", choices.answers())["text"]
    assert "# state: {conn_id: cdc_state}" in text
    assert "dsn_env" not in text
    assert "docs/pipeline_file.md in the installed" in text


def test_what_speaks_against_it_is_found_with_its_fix(
    page: Page, choices: Choices, mysql_sink: SqlServer
) -> None:
    mysql_sink.execute(f"CREATE TABLE `{choices.target}`.orders (id INT PRIMARY KEY, note INT)")
    mysql_sink.execute(f"INSERT INTO `{choices.target}`.orders VALUES (7, 7)")
    checked = asked(page, "check", choices.answers())
    assert checked["refused"] is True
    blocks = [each for each in checked["findings"] if each["level"] == "block"]
    assert any(f"{choices.target}.orders" in each["subject"] for each in blocks)
    assert all(each["fix"] for each in blocks)
    # keyless is not excluded by these answers: what a copy of it costs is said
    warned = [each for each in checked["findings"] if each["code"] == "table.primary_key"]
    assert [each["subject"] for each in warned] == [f"{choices.database}.keyless"]


def test_grants_are_those_of_the_accounts(page: Page, choices: Choices) -> None:
    of_source = {"conn_id": "new_source", "part": "source", "databases": [choices.database]}
    of_sink = {"conn_id": "new_sink", "part": "sink", "databases": [choices.target]}
    at_source = asked(page, "rights", of_source)["statements"]
    assert "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'cdc'@'%';" in at_source
    assert f"GRANT SELECT ON `{choices.database}`.* TO 'cdc'@'%';" in at_source
    assert any(
        f"ON `{choices.target}`.*" in each for each in asked(page, "rights", of_sink)["statements"]
    )


def test_an_account_without_any_right_is_told_the_grants_it_needs(
    page: Page, choices: Choices, mysql_server: SqlServer
) -> None:
    with least_privileged(source_account(mysql_server)) as (account,):
        for right in account.rights:
            account.revoke(right)
        choices.add("new_bare", account.dsn, "cdc_mysql")
        answer = page.post("/api/new/tables", {"source": "new_bare"})
    assert answer.status_code == 400, answer.text
    remedy = answer.json()["error"]["remedy"]
    assert f"GRANT SELECT ON `DATABASE`.* TO '{account.user}'@'%';" in remedy
    assert "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.*" in remedy


def test_a_mariadb_source_is_drafted_and_accepted(
    page: Page, choices: Choices, mariadb_server: SqlServer, mariadb_database: str
) -> None:
    mariadb_server.execute("CREATE TABLE a (id INT PRIMARY KEY)", database=mariadb_database)
    choices.add("new_maria", mariadb_server.dsn(), "mysql")
    answers = choices.answers(source="new_maria", tables=[f"{mariadb_database}.a"], route={})
    form = asked(page, "file", answers)
    assert parse_pipeline(form["text"]).model.source.tables == (f"{mariadb_database}.a",)
    assert asked(page, "tables", {"source": "new_maria"})["facts"][0].startswith("MariaDB ")
    rights = {"conn_id": "new_maria", "part": "source", "databases": [mariadb_database]}
    assert "BINLOG MONITOR" in asked(page, "rights", rights)["statements"][0]
    assert asked(page, "check", answers)["refused"] is False


def test_a_state_connection_is_written_and_looked_at(page: Page, choices: Choices) -> None:
    form = asked(page, "file", choices.answers(state="web_state"))
    state = parse_pipeline(form["text"]).model.state
    assert state is not None
    assert state.conn_id == "web_state"
    exclude = form["exclude"]
    answers = choices.answers(state="web_state", exclude=exclude)
    assert asked(page, "check", answers)["refused"] is False


def listed(page: Page) -> list[str]:
    """Return the names of the pipelines on the page."""
    return [row["pipeline"] for row in page.get("/api/pipelines").json()["pipelines"]]


def test_nothing_is_begun_and_nothing_is_kept(
    page: Page, choices: Choices, mysql_sink: SqlServer
) -> None:
    before = listed(page)
    for look, body in bodies(choices).items():
        asked(page, look, body)
    assert list(airflow_state_folder().glob(f"*{choices.answers()['name']}*")) == []
    assert listed(page) == before
    assert mysql_sink.execute(f"SHOW TABLES FROM `{choices.target}`") == []


@pytest.mark.parametrize(
    ("changed", "where", "what"),
    [
        ({"name": "7 of nine"}, "name", "wanted a letter"),
        ({"tables": ["nowhere.*"]}, "tables", "no table fits 'nowhere.*'"),
        ({"tables": ["nowhere"]}, "tables", "'nowhere' is not 'database.table'"),
        ({"route": {"nowhere.*": "copy.*"}}, "route", "fits none of the tables"),
    ],
)
def test_a_wrong_answer_is_refused_with_its_place(
    page: Page, choices: Choices, changed: dict[str, Any], where: str, what: str
) -> None:
    answer = page.post("/api/new/file", choices.answers(**changed))
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["where"] == where
    assert what in error["what"]
    assert error["remedy"]


@pytest.mark.parametrize(
    "changed",
    [
        {"mode": "often"},
        {"tables": []},
        {"source": "mysql://u:secret@host/"},
        {"source": ""},
        {"more": 1},
    ],
)
def test_a_body_that_is_not_of_the_form_is_refused(
    page: Page, choices: Choices, changed: dict[str, Any]
) -> None:
    assert page.post("/api/new/file", choices.answers(**changed)).status_code == 422


def test_a_connection_that_is_not_there_or_no_database_says_so(
    page: Page, choices: Choices
) -> None:
    choices.add("new_http", "mysql://u:p@127.0.0.1/", "http")
    for source, what in (("new_nothing", "there is no connection"), ("new_http", "is of type")):
        answer = page.post("/api/new/tables", {"source": source})
        assert answer.status_code == 400
        assert what in answer.json()["error"]["what"]


# --- who may ----------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ROLES)
def test_only_who_may_add_connections_looks_at_servers(
    page: Page, choices: Choices, role: str
) -> None:
    may = role in {"OP", "ADMIN"}
    form = page.get("/api/new", role=role).json()
    assert form["may_look"] is may
    assert bool(form["connections"]) is may
    for look, body in bodies(choices).items():
        answer = page.post(f"/api/new/{look}", body, role=role)
        assert (look, answer.status_code) == (look, 200 if may else 403), answer.text


def test_a_connection_that_one_may_not_read_is_not_offered_and_not_looked_at(
    page: Page, choices: Choices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow's simple auth manager knows no rights of single connections: it is taught one."""
    from airflow.api_fastapi.app import get_auth_manager  # noqa: PLC0415 - loads the API server

    manager = get_auth_manager()
    allows = manager.is_authorized_connection

    def allows_others(*, method: Any, user: Any, details: Any = None) -> bool:
        is_it = getattr(details, "conn_id", None) == "new_source"
        return not (is_it and method == "GET") and allows(method=method, user=user, details=details)

    monkeypatch.setattr(manager, "is_authorized_connection", allows_others)
    offered = {each["conn_id"] for each in page.get("/api/new").json()["connections"]}
    assert "new_sink" in offered
    assert "new_source" not in offered
    for look, body in bodies(choices).items():
        assert (look, page.post(f"/api/new/{look}", body).status_code) == (look, 403)
    for part in ("sink", "state"):
        named = bodies(choices, **{"source": "new_sink", part: "new_source"})
        for look in ("file", "check"):
            assert page.post(f"/api/new/{look}", named[look]).status_code == 403


@pytest.mark.parametrize("look", LOOKS)
def test_what_another_site_or_a_form_can_send_is_refused(
    page: Page, choices: Choices, look: str
) -> None:
    body = bodies(choices)[look]
    from_elsewhere = {"Sec-Fetch-Site": "cross-site"}
    assert page.post(f"/api/new/{look}", body, headers=from_elsewhere).status_code == 403
    as_text = {"Content-Type": "text/plain"}
    answer = page.ask("POST", f"/api/new/{look}", content=json.dumps(body), headers=as_text)
    assert answer.status_code == 415
    assert page.get(f"/api/new/{look}").status_code == 405


def test_a_look_is_a_line_in_airflows_audit_log(page: Page, choices: Choices) -> None:
    answer = page.post("/api/new/tables", {"source": "new_source"}, role="OP")
    assert answer.status_code == 200
    log = page.airflow("GET", "/api/v2/eventLogs?event=cdc_new_pipeline_tables&limit=1000").json()
    last = log["event_logs"][-1]
    assert last["owner"] == "op"
    assert "new_source" in last["extra"]


# --- servers that are wrong, hang, or repeat what they were told --------------------------------


def test_a_wrong_server_is_told_with_what_to_do(page: Page, choices: Choices) -> None:
    choices.add("new_down", "mysql://u:p@127.0.0.1:1/", "cdc_mysql")
    answer = page.post("/api/new/tables", {"source": "new_down"})
    assert answer.status_code == 503
    error = answer.json()["error"]
    assert "127.0.0.1:1" in json.dumps(error)
    assert error["remedy"]
    answer = page.post("/api/new/check", choices.answers(sink="new_down"))
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "CDC-SNK-001"


def test_a_server_that_hangs_is_given_up_and_holds_nobody_up(
    page: Page, choices: Choices, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = BoundedLooks(most=2, limit_s=1.5)
    monkeypatch.setattr(new_pipeline, "LOOKS", looks)
    with hung_server() as port:
        choices.add("new_hung", f"mysql://u:p@127.0.0.1:{port}/", "mysql")
        for changed in ({"source": "new_hung"}, {"sink": "new_hung"}):
            for look in ("tables", "check") if "source" in changed else ("check",):
                began_s = time.monotonic()
                answer = page.post(f"/api/new/{look}", bodies(choices, **changed)[look])
                assert answer.status_code == 503, answer.text
                assert "within 1.5 seconds" in answer.json()["error"]["what"]
                assert time.monotonic() - began_s < 10
        # threads of looks that were given up have ended: as many as may are under way again
        deadline_s = time.monotonic() + 10
        while looks._free._value < looks.most and time.monotonic() < deadline_s:
            time.sleep(0.05)
        assert looks._free._value == looks.most
    asked(page, "tables", {"source": "new_source"})


def test_more_looks_than_a_few_at_once_are_asked_to_wait(
    page: Page, choices: Choices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_pipeline, "LOOKS", BoundedLooks(most=1, limit_s=30))
    assert new_pipeline.LOOKS._free.acquire(blocking=False)
    answer = page.post("/api/new/tables", {"source": "new_source"})
    assert answer.status_code == 503
    assert "under way already" in answer.json()["error"]["what"]


def test_a_password_of_a_connection_is_in_no_answer(
    page: Page, choices: Choices, mysql_server: SqlServer, mysql_sink: SqlServer
) -> None:
    planted = f"Xq7vKz/@:% {secrets.token_hex(4)}"
    accounts = (
        source_account(mysql_server, choices.database, password=planted),
        sink_account(mysql_sink, choices.target, password=planted),
    )
    with least_privileged(*accounts) as (at_source, at_sink):
        choices.add("new_planted", at_source.dsn, "mysql")
        choices.add("new_planted_sink", at_sink.dsn, "mysql")
        # a server that repeats in its words what it was told: the password is its login, too
        wrong = mysql_server.dsn(user=planted[:32], password=planted[:32])
        choices.add("new_wrong", wrong, "mysql")
        said = [page.get("/api/new").text]
        for changed in (
            {"source": "new_planted", "sink": "new_planted_sink"},
            {"source": "new_planted", "sink": "new_wrong"},
            {"source": "new_wrong"},
            {"state": "new_planted"},
        ):
            for look, body in bodies(choices, **changed).items():
                said.append(page.post(f"/api/new/{look}", body).text)
    text = "\n".join(said)
    for secret in (planted, quote(planted, safe=""), quote_plus(planted), planted[:12]):
        assert secret not in text
        assert json.dumps(secret)[1:-1] not in text
    assert "***" in text  # the words of the server that refused the login
