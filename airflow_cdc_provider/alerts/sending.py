"""Sending one message to one receiver, within a time limit.

A receiver that answers with anything but success has not taken the message. Redirects are not
followed: a POST that is redirected arrives as a GET, without the message.
"""

from __future__ import annotations

import json
import smtplib
import ssl
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from http.client import HTTPException, HTTPMessage
from typing import IO, Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from airflow_cdc_provider.alerts.messages import Message
from airflow_cdc_provider.engine.scrubbing import Secrets
from airflow_cdc_provider.pipeline.receivers import Mailbox, Receiver, Webhook

ANSWER_S = 10.0
"""How long a receiver may take for each of its answers."""


class NotSentError(Exception):
    """A receiver did not take a message; the text holds none of its secrets."""


def send(receiver: Receiver, message: Message) -> None:
    """Send the message, or raise `NotSentError`."""
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
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        """Leave the answer as it is: an error."""


def _post(receiver: Webhook, message: Message) -> None:
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
    mail = EmailMessage()
    mail["Subject"], mail["From"], mail["To"] = (
        message.title,
        receiver.sender,
        ", ".join(receiver.to),
    )
    mail["Date"], mail["Message-ID"] = formatdate(), make_msgid(domain="airflow-provider-cdc")
    mail["X-CDC-Message"] = message.message_id
    mail.set_content(message.text)
    place = receiver.host, receiver.port
    context = ssl.create_default_context()
    is_tls = receiver.security == "tls"
    with (
        smtplib.SMTP_SSL(*place, timeout=ANSWER_S, context=context)
        if is_tls
        else smtplib.SMTP(*place, timeout=ANSWER_S)
    ) as server:
        if receiver.security == "starttls":
            server.starttls(context=context)
        if receiver.login:
            server.login(receiver.login, receiver.password)
        refused = server.send_message(mail, receiver.sender, receiver.to)
    if refused:
        # some have it: sending it again would send it to them twice
        raise NotSentError(f"{len(refused)} of {len(receiver.to)} recipients were refused")
