"""A statement's tokens, taken one after another: words, names, tables, clauses."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.mysql.dialect.sql_tokens import Token

TABLE_NOUNS = {"TABLE", "TABLES"}
DATABASE_NOUNS = {"DATABASE", "SCHEMA"}
OTHER_NOUNS = {
    *("EVENT", "FUNCTION", "LIBRARY", "LOGFILE", "PACKAGE", "PROCEDURE", "RESOURCE", "ROLE"),
    *("SEQUENCE", "SERVER", "SPATIAL_REFERENCE", "TABLESPACE", "TRIGGER", "UNDO", "USER", "VIEW"),
    *("INSTANCE", "MATERIALIZED", "MASKING"),
}
INDEX_NOUNS = {"INDEX"}
_NOUNS = TABLE_NOUNS | DATABASE_NOUNS | OTHER_NOUNS | INDEX_NOUNS


class StatementTokens:
    """A cursor over a statement's tokens: takes words, names, tables and clauses."""

    def __init__(self, found: Sequence[Token], default_database: str) -> None:
        self.tokens = found
        self.default_database = default_database
        self.position = 0

    @property
    def current(self) -> Token | None:
        """Return the next token, None at the end."""
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    def next_word(self) -> str:
        """Take a token and return it in upper case, empty unless it is an unquoted word."""
        token = self.current
        self.position += 1
        return token.text.upper() if token is not None and token.is_word(token.text.upper()) else ""

    def verb(self) -> str:
        """Take the statement's first word, in upper case; empty if there is none."""
        if self.take_word("SET") and self.take_word("STATEMENT"):
            # MariaDB: SET STATEMENT variable = value FOR statement
            self.skip_to("FOR")
            self.take_word("FOR")
        else:
            self.position = 0
        return self.next_word()

    def is_at(self, *words: str) -> bool:
        """Tell whether the next token is one of these words, without taking it."""
        token = self.current
        return token is not None and token.is_word(*words)

    def take_word(self, *words: str) -> bool:
        """Take the next token if it is one of these words."""
        if not self.is_at(*words):
            return False
        self.position += 1
        return True

    def take_mark(self, mark: str) -> bool:
        """Take the next token if it is this mark."""
        token = self.current
        if token is None or not token.is_mark(mark):
            return False
        self.position += 1
        return True

    def skip_to(self, *words: str) -> bool:
        """Move to the next of these words that is outside parentheses; False if there is none."""
        depth = 0
        while (token := self.current) is not None:
            depth += token.is_mark("(") - token.is_mark(")")
            if depth == 0 and token.is_word(*words):
                return True
            self.position += 1
        return False

    def noun(self) -> str:
        """Move past the noun of CREATE, ALTER or DROP (TABLE, INDEX, VIEW), and return it."""
        while (token := self.current) is not None:
            self.position += 1
            if token.is_word("DEFINER"):
                self._skip_account()
            elif token.is_word(*_NOUNS):
                return token.text.upper()
            elif token.is_mark("("):
                return ""
        return ""

    def _skip_account(self) -> None:
        """Move past the account of a DEFINER clause."""
        if not self.take_mark("="):
            return  # SQL SECURITY DEFINER
        self.position += 1
        if self.take_mark("@") or self.take_mark("("):  # user@host or CURRENT_USER()
            self.position += 1

    def skip_existence(self) -> bool:
        """Move past IF EXISTS or IF NOT EXISTS; True for the latter."""
        if not self.take_word("IF"):
            return False
        is_not = self.take_word("NOT")
        return self.take_word("EXISTS") and is_not

    def name(self) -> str:
        """Take a name; empty if the next token is no name."""
        token = self.current
        if token is None or not token.is_name:
            return ""
        self.position += 1
        return token.text

    @property
    def rest(self) -> Sequence[Token]:
        """Return the tokens not taken yet."""
        return self.tokens[self.position :]

    def table(self) -> TableId | None:
        """Take a table's name, qualified or not; None if there is none."""
        self.take_mark(".")
        token = self.current
        if token is None or not token.is_name:
            return None
        self.position += 1
        if not self.take_mark("."):
            return TableId(self.default_database, token.text)
        second = self.current
        if second is None or not second.is_name:
            return None
        self.position += 1
        return TableId(token.text, second.text)

    def table_list(self) -> tuple[TableId, ...]:
        """Take tables' names parted by commas; empty if one is not understood."""
        found = []
        while True:
            table = self.table()
            if table is None:
                return ()
            found.append(table)
            if not self.take_mark(","):
                return tuple(found)

    def clauses(self) -> list[list[Token]]:
        """Return the remaining tokens, cut into clauses at commas."""
        whole: list[list[Token]] = []
        for part in self._parts():
            if whole and _goes_on(whole[-1], part):
                whole[-1] += part
            else:
                whole.append(part)
        return whole

    def _parts(self) -> list[list[Token]]:
        """Return the remaining tokens, cut at commas outside parentheses."""
        depth, found = 0, [[]]  # type: tuple[int, list[list[Token]]]
        for token in self.tokens[self.position :]:
            depth += token.is_mark("(") - token.is_mark(")")
            if depth == 0 and token.is_mark(","):
                found.append([])
            elif not token.is_mark(";"):
                found[-1].append(token)
        return [clause for clause in found if clause]


def _goes_on(clause: Sequence[Token], part: Sequence[Token]) -> bool:
    """Tell whether a part after a comma continues the clause before, as one more name."""
    if len(clause) < 2 or not part[0].is_name:
        return False
    if clause[0].is_word("ORDER") and clause[1].is_word("BY"):
        return len(part) == 1 or (len(part) == 2 and part[1].is_word("ASC", "DESC"))
    if not clause[1].is_word("PARTITION"):
        return False
    return len(part) == 1 or (clause[0].is_word("REORGANIZE") and part[1].is_word("INTO"))
