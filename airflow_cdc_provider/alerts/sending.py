"""Sending one message to one receiver, within a time limit.

A receiver that answers with anything but success has not taken the message. Redirects are not
followed: a POST that is redirected arrives as a GET, without the message.
"""

from __future__ import annotations

import json
import logging
import smtplib
import ssl
from contextlib import suppress
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from http.client import HTTPException, HTTPMessage
from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, Request, build_opener

from airflow_cdc_provider.alerts.messages import Message
from airflow_cdc_provider.engine.scrubbing import Secrets
from airflow_cdc_provider.pipeline.receivers import Mailbox, Receiver, Webhook

log = logging.getLogger(__name__)

ANSWER_S = 10.0
"""How long a receiver may take for each of its answers."""


class NotSentError(Exception):
    """Raised when a receiver did not take a message; the text has none of its secrets."""


def send(receiver: Receiver, message: Message) -> None:
    """Send a message to a receiver, or raise `NotSentError`."""
    try:
        if isinstance(receiver, Mailbox):
            _mail(receiver, message)
        else:
            _post(receiver, message)
    except HTTPError as error:
        error.close()
        raise NotSentError(f"it answered {error.code}") from None
    except (OSError, HTTPException, smtplib.SMTPException, ValueError) as error:
        cause = f"{type(error).__name__}: {error}"
        raise NotSentError(Secrets.of_texts(*receiver.secrets).scrub(cause)) from None


class _NoRedirects(HTTPRedirectHandler):
    """An opener of URLs that follows no redirect."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        """Follow no redirect: its answer counts as an error."""


def _post(receiver: Webhook, message: Message) -> None:
    """Post the message as JSON to a webhook."""
    form: Any = {"text": message.text} if receiver.name == "slack" else message.to_json()
    request = Request(  # noqa: S310 - only http and https become a `Webhook`
        receiver.url,
        data=json.dumps(form).encode(),
        headers={"Content-Type": "application/json", **receiver.headers},
        method="POST",
    )
    with build_opener(_NoRedirects).open(request, timeout=ANSWER_S):
        pass


def _mail(receiver: Mailbox, message: Message) -> None:
    """Send the message by mail."""
    server = _connected(receiver)
    try:
        if receiver.login:
            server.login(receiver.login, receiver.password)
        refused = server.send_message(_written(receiver, message), receiver.sender, receiver.to)
        with suppress(OSError, smtplib.SMTPException):  # it has the mail by now
            server.quit()
    finally:
        server.close()
    if refused:  # the others have it, and would get it again
        log.warning("mail: %d of %d recipients were refused", len(refused), len(receiver.to))


def _connected(receiver: Mailbox) -> smtplib.SMTP:
    """Return a connection to the mail server; an encrypted one verifies the server."""
    context = ssl.create_default_context()
    place = receiver.host, receiver.port
    if receiver.security == "tls":
        return smtplib.SMTP_SSL(*place, timeout=ANSWER_S, context=context)
    server = smtplib.SMTP(*place, timeout=ANSWER_S)
    try:
        if receiver.security == "starttls":
            server.starttls(context=context)
    except BaseException:
        server.close()
        raise
    return server


def _written(receiver: Mailbox, message: Message) -> EmailMessage:
    """Return the message as a mail."""
    mail = EmailMessage()
    mail["Subject"] = message.title
    mail["From"] = receiver.sender
    mail["To"] = ", ".join(receiver.to)
    mail["Date"] = formatdate()
    mail["Message-ID"] = make_msgid(domain="airflow-provider-cdc")
    mail["X-CDC-Message"] = quote(message.message_id, safe="/:@")
    mail.set_content(message.text.encode(errors="replace").decode())
    return mail
