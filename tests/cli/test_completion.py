"""Names of tables are completed by Tab where `init` asks for them."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time

import pytest

from airflow_cdc_provider.cli.completion import completed
from tests.pipeline.conftest import Shop

WORDS = ["shop.*", "shop.orders", "shop.order_lines", "crm.people"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", WORDS),
        ("shop.or", ["shop.orders", "shop.order_lines"]),
        ("crm", ["crm.people"]),
        ("nothing", []),
    ],
)
def test_words_that_begin_so_are_offered(text: str, words: list[str]) -> None:
    offered = [completed(text, WORDS, number) for number in range(len(words) + 1)]
    assert offered == [*words, None]


class Typed:
    """A command at a terminal, and what a person types there."""

    def __init__(self, *words: str, environment: dict[str, str]) -> None:
        self.shown = ""
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "airflow_cdc_provider", *words],
            env={**os.environ, **environment, "TERM": "dumb"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def answers(self, question: str, keys: str) -> None:
        """Type keys once a question is shown."""
        self.waits_for(question)
        self.shown = ""
        os.write(self._ours, keys.encode())

    def waits_for(self, text: str) -> None:
        until_s = time.monotonic() + 60
        while text not in self.shown:
            assert time.monotonic() < until_s, f"{text!r} is not in {self.shown!r}"
            if select.select([self._ours], [], [], 0.2)[0]:
                self.shown += os.read(self._ours, 65536).decode(errors="replace")

    def close(self) -> None:
        self.process.kill()
        self.process.wait(30)
        os.close(self._ours)


def test_a_table_and_its_route_are_completed_at_a_terminal(shop: Shop) -> None:
    pytest.importorskip("readline")
    servers = ("--source", "SHOP_DSN", "--sink", "DR_DSN")
    path = shop.path.with_name("typed.yaml")
    typed = Typed("init", str(path), *servers, environment=shop.environment)
    try:
        typed.answers("tables (as", f"{shop.database}.ord\t\n")
        typed.waits_for(f"tables: {shop.database}.orders")
        typed.answers("under the same names", f"{shop.database}.*\t{shop.target}.*\n")
        typed.answers("mode (", "\n")
        typed.answers("verify (", "\n")
        typed.waits_for("written:")
    finally:
        typed.close()
    text = path.read_text()
    assert f"{shop.database}.orders" in text
    assert f"{shop.target}.*" in text
