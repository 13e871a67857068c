"""Where messages go, by what connections and variables hold; and that they arrive there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_cdc_provider.alerts import sending
from airflow_cdc_provider.alerts.messages import Message
from airflow_cdc_provider.alerts.notices import Kind, Notice
from airflow_cdc_provider.alerts.sending import NotSentError, send
from airflow_cdc_provider.core.errors import PipelineFileError
from airflow_cdc_provider.pipeline.connections import EnvironmentDsns
from airflow_cdc_provider.pipeline.file.loader import parse_pipeline
from airflow_cdc_provider.pipeline.receivers import (
    Mailbox,
    Receiver,
    Webhook,
    Wrong,
    find_receivers,
)
from tests.alerts.conftest import PATH, TOKEN, HttpReceiver, MailServer

FILE = """\
pipeline: shop
source: {{dsn_env: SHOP_DSN, tables: ["shop.*"]}}
sink: {{dsn_env: DR_DSN, route: {{"shop.*": "copy.*"}}}}
notify: {notify}
"""
NOTICE = Notice(
    Kind.OUTAGE, "CDC-SNK-001", "CDC-SNK-001", "the sink is away", "db:3306", "", "start it", 5
)
MESSAGE = Message("shop", NOTICE)


def found(
    notify: dict[str, Any], **environment: str
) -> tuple[tuple[Receiver, ...], tuple[Wrong, ...]]:
    loaded = parse_pipeline(FILE.format(notify=json.dumps(notify)))
    return find_receivers(loaded.model.notify, EnvironmentDsns(environment))


def one(notify: dict[str, Any], **environment: str) -> Receiver:
    receivers, wrong = found(notify, **environment)
    assert wrong == ()
    (receiver,) = receivers
    return receiver


def hook(stored: str, name: str = "webhook") -> Webhook:
    made = one({name: {"conn_id": "ops"}}, AIRFLOW_CONN_OPS=stored)
    assert isinstance(made, Webhook)
    return made


def mailbox(stored: str, **more: Any) -> Mailbox:
    email = {"dsn_env": "MAIL", "to": ["ops@example.com"], **more}
    made = one({"email": email}, MAIL=stored)
    assert isinstance(made, Mailbox)
    return made


@pytest.mark.parametrize(
    ("stored", "url"),
    [
        ("http://hooks.example.com:8080/https", "https://hooks.example.com:8080"),
        ("https://hooks.example.com/a%2Fb", "https://hooks.example.com/a/b"),
        (
            '{"conn_type": "http", "host": "https://h.example.com/a?k=v"}',
            "https://h.example.com/a?k=v",
        ),
        ('{"conn_type": "http", "host": "h.example.com"}', "http://h.example.com"),
    ],
)
def test_a_connection_of_type_http_is_read_as_airflows_hook_reads_it(stored: str, url: str) -> None:
    assert hook(stored).url == url


def test_login_and_extra_of_a_connection_are_sent_as_headers(receiver: HttpReceiver) -> None:
    form = {
        "conn_type": "http",
        "host": receiver.url,
        "login": "ann",
        "password": "planted",
        "extra": {"X-Team": "data"},
    }
    send(hook(json.dumps(form)), MESSAGE)
    (headers,) = receiver.headers
    assert headers["Authorization"] == "Basic YW5uOnBsYW50ZWQ="
    assert headers["X-Team"] == "data"
    assert headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("form", "url"),
    [
        ({"password": "T000/B000/XXX"}, "https://hooks.slack.com/services/T000/B000/XXX"),
        ({"password": "https://chat.example.com/x"}, "https://chat.example.com/x"),
        ({"host": "chat.example.com", "password": "a/b"}, "https://chat.example.com/a/b"),
    ],
)
def test_a_connection_of_type_slackwebhook_is_read_as_airflows_hook_reads_it(
    form: dict[str, str], url: str
) -> None:
    assert hook(json.dumps({"conn_type": "slackwebhook", **form}), "slack").url == url


@pytest.mark.parametrize("conn_type", ["http", "https", "generic", ""])
def test_a_password_is_in_the_url_of_a_slackwebhook_alone(conn_type: str) -> None:
    form = {"conn_type": conn_type, "host": "http://h.example.com/ops", "login": "bot"}
    made = hook(json.dumps({**form, "password": "Hook/S3cret"}))
    assert made.url == "http://h.example.com/ops"
    assert made.headers["Authorization"].startswith("Basic ")


@pytest.mark.parametrize(
    ("form", "url"),
    [
        ({"password": "T000/B000/XXX"}, "https://hooks.slack.com/services/T000/B000/XXX"),
        ({"password": "https://chat.example.com/x"}, "https://chat.example.com/x"),
        (
            {"host": "https://chat.example.com/hooks", "password": "a/b"},
            "https://chat.example.com/hooks/a/b",
        ),
        (
            {"host": "https://chat.example.com/x", "login": "bot", "password": "a/b"},
            "https://chat.example.com/x",
        ),
        ({"host": "https://chat.example.com/x"}, "https://chat.example.com/x"),
    ],
)
def test_a_slackwebhook_that_airflow_stored_as_generic_is_read_as_one(
    form: dict[str, str], url: str
) -> None:
    made = hook(json.dumps({"conn_type": "generic", **form}), "slack")
    assert made.url == url
    assert bool(made.headers) is ("login" in form)


def test_a_webhook_that_airflow_stored_as_generic_is_posted_to_with_its_login(
    receiver: HttpReceiver,
) -> None:
    form = {"conn_type": "generic", "host": receiver.url, "login": "bot", "password": "Hook/S3c"}
    send(hook(json.dumps(form)), MESSAGE)
    assert receiver.headers[0]["Authorization"] == "Basic Ym90Okhvb2svUzNj"
    assert len(receiver.got) == 1  # of a URL that is the connection's and nothing else


@pytest.mark.parametrize("conn_type", ["smtp", "email", "generic"])
def test_mail_goes_by_each_type_that_airflow_may_make_of_a_mail_server(
    conn_type: str, mail_server: MailServer
) -> None:
    extra = {"disable_ssl": True, "disable_tls": True, "from_email": "cdc@example.com"}
    form = {"conn_type": conn_type, "host": "127.0.0.1", "port": mail_server.port, "extra": extra}
    made = one(
        {"email": {"conn_id": "ops", "to": ["ops@example.com"]}}, AIRFLOW_CONN_OPS=json.dumps(form)
    )
    send(made, MESSAGE)
    assert len(mail_server.got) == 1


def test_slack_gets_a_text_and_nothing_else(receiver: HttpReceiver) -> None:
    send(one({"slack": {"url_env": "SLACK"}}, SLACK=receiver.url), MESSAGE)
    (told,) = receiver.got
    assert told == {
        "text": "[shop] an outage (CDC-SNK-001)\nthe sink is away\n"
        "Since: 1970-01-01 00:00:00 UTC\nWhere: db:3306\nWhat to do: start it"
    }


def test_a_url_with_a_password_sends_it_as_a_header_and_shows_neither(
    receiver: HttpReceiver,
) -> None:
    url = receiver.url.replace("://", "://ann:planted@")
    made = one({"webhook": {"url_env": "OPS"}}, OPS=url)
    send(made, MESSAGE)
    assert receiver.headers[0]["Authorization"] == "Basic YW5uOnBsYW50ZWQ="
    assert "planted" not in repr(made)
    assert TOKEN not in repr(made)
    assert {PATH, TOKEN} < made.secrets
    assert "hooks" not in made.secrets  # a word of other texts, too


def test_mail_arrives_at_all_recipients(mail_server: MailServer) -> None:
    mail_server.password = "plan/ted"
    stored = (
        f"smtp://ann:plan%2Fted@127.0.0.1:{mail_server.port}/?disable_ssl=true&disable_tls=true"
    )
    to = ["ops@example.com", "ann@example.com"]
    send(mailbox(stored, sender="cdc@example.com", to=to), MESSAGE)
    (mail,) = mail_server.got
    assert mail["Subject"] == "[shop] an outage (CDC-SNK-001)"
    assert (mail["From"], mail["To"]) == ("cdc@example.com", ", ".join(to))
    assert "What to do: start it" in str(mail.get_payload())
    assert len(mail_server.recipients) == 2


def test_a_mail_server_that_repeats_the_password_shows_it_nowhere(mail_server: MailServer) -> None:
    stored = (
        f"smtp://ann:planted@127.0.0.1:{mail_server.port}/?disable_ssl=true&disable_tls=true"
        "&from_email=cdc%40example.com"
    )
    with pytest.raises(NotSentError, match="535") as caught:
        send(mailbox(stored), MESSAGE)
    assert "planted" not in str(caught.value)
    assert "AGFubgBwbGFudGVk" not in str(caught.value)  # as the protocol writes it


def test_mail_that_some_were_refused_is_sent_to_the_others_and_not_again(
    mail_server: MailServer,
) -> None:
    mail_server.refused = "nobody@example.com"
    stored = f"smtp://127.0.0.1:{mail_server.port}/?disable_ssl=true&disable_tls=true"
    to = ["nobody@example.com", "ops@example.com"]
    send(mailbox(stored, sender="cdc@example.com", to=to), MESSAGE)
    assert len(mail_server.got) == 1


@pytest.mark.parametrize(
    ("options", "security", "port"),
    [
        ("", "tls", 465),
        ("&disable_ssl=true", "starttls", 587),
        ("&disable_ssl=true&disable_tls=true", "none", 25),
    ],
)
def test_a_mail_server_is_verified_unless_the_connection_says_else(
    options: str, security: str, port: int
) -> None:
    made = mailbox(f"smtp://mail.example.com/?from_email=cdc%40example.com{options}")
    assert (made.security, made.port, made.sender) == (security, port, "cdc@example.com")


def test_a_server_that_does_not_speak_tls_gets_no_mail(mail_server: MailServer) -> None:
    stored = f"smtp://ann:planted@127.0.0.1:{mail_server.port}/?disable_ssl=true"
    with pytest.raises(NotSentError, match="STARTTLS"):
        send(mailbox(stored, sender="cdc@example.com"), MESSAGE)
    assert mail_server.got == []


@pytest.mark.parametrize(
    ("notify", "environment", "path", "what"),
    [
        ({"webhook": {"url_env": "OPS"}}, {}, "url_env", "OPS is not set"),
        ({"webhook": {"url_env": "OPS"}}, {"OPS": "ftp://planted/x"}, "url_env", "no URL"),
        ({"webhook": {"url_env": "OPS"}}, {"OPS": "https://h:planted/x"}, "url_env", "no URL"),
        ({"webhook": {"url_env": "OPS"}}, {"OPS": "https://h/pla nted"}, "url_env", "no URL"),
        ({"slack": {"conn_id": "ops"}}, {}, "conn_id", "no connection 'ops'"),
        (
            {"webhook": {"conn_id": "ops"}},
            {"AIRFLOW_CONN_OPS": "https://h/?verify=false"},
            "conn_id",
            "has verify, which is not obeyed",
        ),
        (
            {"webhook": {"conn_id": "ops"}},
            {"AIRFLOW_CONN_OPS": "mysql://u:planted@h/"},
            "conn_id",
            "is of type 'mysql'",
        ),
        (
            {"webhook": {"conn_id": "ops"}},
            {"AIRFLOW_CONN_OPS": '{"conn_type": "slackwebhook", "password": "T0/B0/planted"}'},
            "conn_id",
            "is of type 'slackwebhook'",
        ),
        (
            {"slack": {"conn_id": "ops"}},
            {"AIRFLOW_CONN_OPS": '{"conn_type": "slack", "password": "xoxb-planted"}'},
            "conn_id",
            "is of type 'slack'",
        ),
        (
            {"slack": {"conn_id": "ops"}},
            {"AIRFLOW_CONN_OPS": '{"conn_type": "generic", "login": "planted"}'},
            "conn_id",
            "has no token",
        ),
        (
            {"slack": {"conn_id": "ops"}},
            {"AIRFLOW_CONN_OPS": "slackwebhook://:planted@/?proxy=p"},
            "conn_id",
            "has proxy, which is not obeyed",
        ),
        (
            {"email": {"conn_id": "ops", "to": ["a@b"], "sender": "c@d"}},
            {"AIRFLOW_CONN_OPS": "http://u:planted@h/"},
            "conn_id",
            "is of type 'http'",
        ),
        (
            {"email": {"dsn_env": "MAIL", "to": ["a@b"]}},
            {"MAIL": "smtp://u:planted@h/"},
            "dsn_env",
            "names no sender",
        ),
        (
            {"email": {"dsn_env": "MAIL", "to": ["a@b"]}},
            {"MAIL": "smtp://u:pla/nted@h/"},
            "dsn_env",
            "is not one",
        ),
        (
            {"email": {"dsn_env": "MAIL", "to": ["a@b"], "sender": "c@d"}},
            {"MAIL": "smtp://h/?auth_type=oauth2"},
            "dsn_env",
            "OAuth2",
        ),
    ],
)
def test_what_makes_no_receiver_is_named_by_its_key_without_its_text(
    notify: dict[str, Any], environment: dict[str, str], path: str, what: str
) -> None:
    receivers, (problem,) = found(notify, **environment)
    assert receivers == ()
    assert problem[0] == ("notify", *notify, path)
    assert what in problem[1]
    assert "planted" not in " ".join(problem[1:])


@pytest.mark.parametrize(
    ("notify", "what"),
    [
        ({}, "nobody is named"),
        ({"webhook": {}}, "neither is there"),
        ({"webhook": {"conn_id": "a", "url_env": "B"}}, "both are there"),
        ({"webhook": {"url": "https://h"}}, "url"),
        ({"email": {"conn_id": "a", "to": ["a@b, c@d"]}}, "not the address of a mailbox"),
        ({"email": {"conn_id": "a", "to": []}}, "to"),
    ],
)
def test_a_section_that_names_no_receiver_is_refused_with_its_line(
    notify: dict[str, Any], what: str
) -> None:
    with pytest.raises(PipelineFileError, match=r"line 4.*notify") as caught:
        parse_pipeline(FILE.format(notify=json.dumps(notify)))
    assert what in str(caught.value)


def test_a_receiver_that_cannot_be_reached_is_no_secrets_leak(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sending, "ANSWER_S", 1.0)
    with pytest.raises(NotSentError) as caught:
        send(Webhook("webhook", f"http://127.0.0.1:9{PATH}"), MESSAGE)
    assert "refused" in str(caught.value)
    assert TOKEN not in str(caught.value)


def test_a_long_error_is_cut() -> None:
    notice = Notice(Kind.FAILED, "CDC-000", "CDC-000", "x" * 9000)
    assert len(Message("shop", notice).text) < 3000
