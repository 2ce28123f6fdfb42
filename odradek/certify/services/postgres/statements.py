"""SQL text -> what it does: kind, tables, ON CONFLICT, and whether it may change something."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

CACHED: Final = 4096
"""Number of texts whose statements are kept."""
TEXT_CHARS: Final = 20_000
"""Maximum length of a text that is parsed. Of a longer one, only the first keywords are read."""
_COMMENTS: Final = re.compile(r"\s*(?:--[^\n]*(?:\n|$)|/\*.*?\*/)", re.DOTALL)
_PLACEHOLDER: Final = re.compile(r"\$\d+\b")
_WORD: Final = re.compile(r"[A-Za-z_]+")
_NAMED: Final = re.compile(r'\s*(?:PREPARE|EXECUTE|DEALLOCATE(?:\s+PREPARE)?)\s+("[^"]+"|\w+)', re.IGNORECASE)
_NAME_OF: Final = r"(?P<name>(?:\w|\"[^\"]+\"|\.)+)"
_OBJECT: Final = re.compile(
    r"(?:CREATE|ALTER|DROP|REFRESH)\s+"
    r"(?:(?:OR|REPLACE|GLOBAL|LOCAL|TEMP|TEMPORARY|UNLOGGED|UNIQUE|MATERIALIZED|FOREIGN|RECURSIVE)\s+)*"
    rf"(?P<type>[A-Z]+)\s+(?:CONCURRENTLY\s+)?(?:IF\s+(?:NOT\s+)?EXISTS\s+)?{_NAME_OF}",
    re.IGNORECASE,
)
_DIRECT: Final = re.compile(
    r"(?:CALL|NOTIFY|INSERT\s+INTO|UPDATE(?:\s+ONLY)?|DELETE\s+FROM(?:\s+ONLY)?|MERGE\s+INTO|TRUNCATE(?:\s+TABLE)?)\s+"
    rf"{_NAME_OF}",
    re.IGNORECASE,
)
_CONFLICT: Final = re.compile(
    r"\bON\s+CONFLICT\b[^;]{0,300}?\bDO\s+(?P<does>NOTHING|UPDATE)\b", re.IGNORECASE
)
_COPY: Final = re.compile(rf"COPY\s+{_NAME_OF}\s*(?:\([^)]*\)\s*)?(?P<way>FROM|TO)\b", re.IGNORECASE)
_PARSED: Final = frozenset(
    {
        *("SELECT", "WITH", "VALUES", "TABLE", "INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE"),
    }
)
_WITHOUT_EFFECT: Final = frozenset(
    {
        *(
            "",
            "BEGIN",
            "SAVEPOINT",
            "RELEASE",
            "ROLLBACK TO",
            "SET",
            "RESET",
            "SHOW",
            "DISCARD",
            "DEALLOCATE",
        ),
        *(
            "COPY TO",
            "PREPARE",
            "DECLARE",
            "CLOSE",
            "MOVE",
            "LISTEN",
            "UNLISTEN",
            "LOCK",
            "EXPLAIN",
            "ANALYZE",
            "VACUUM",
        ),
        *("CHECKPOINT", "LOAD", "START_REPLICATION", "IDENTIFY_SYSTEM", "READ_REPLICATION_SLOT"),
        *("CREATE_REPLICATION_SLOT", "DROP_REPLICATION_SLOT", "TIMELINE_HISTORY", "BASE_BACKUP"),
    }
)
_READS: Final = frozenset({"SELECT", "VALUES", "TABLE", "FETCH"})
_CATALOGS: Final = ("pg_catalog.", "information_schema.", "pg_")
ENDS: Final = frozenset({"COMMIT", "ROLLBACK", "PREPARE TRANSACTION"})
"""Statements that end a transaction block."""


@dataclass(frozen=True, slots=True)
class Statement:
    sql: str
    kind: str
    """``INSERT``, ``COMMIT``, ``PREPARE TRANSACTION``, ``CREATE TABLE``; the first keyword of an unknown statement."""
    tables: tuple[str, ...] = ()
    """The tables that the statement changes; if it changes none, those that it reads. Sorted."""
    reads: tuple[str, ...] = ()
    """Tables that a statement reads and does not change."""
    functions: tuple[str, ...] = ()
    """Names of called functions that are not PostgreSQL's own, in lower case."""
    on_conflict: str = ""
    """``nothing``, ``update`` or empty."""
    returning: bool = False
    name: str = ""
    """Name of the prepared statement for PREPARE, EXECUTE and DEALLOCATE."""
    is_chained: bool = False
    """Whether COMMIT AND CHAIN or ROLLBACK AND CHAIN begins the next transaction."""
    is_read: bool = False

    @property
    def has_effect(self) -> bool:
        """False for a statement that neither reads nor changes rows of the job, such as SET, or a query of the catalog."""
        if self.kind in _WITHOUT_EFFECT:
            return False
        return not self.is_read or any(not each.startswith(_CATALOGS) for each in self.tables)

    def calls(self, volatile: Collection[str]) -> str:
        """The function that a query calls and that may change something; empty if there is none."""
        return next((each for each in self.functions if each in volatile), "") if self.is_read else ""

    @property
    def on(self) -> str:
        """The statement as in rules, without the service: ``INSERT results``."""
        return " ".join(filter(None, [self.kind, ",".join(self.tables)]))


@lru_cache(CACHED)
def statements(text: str) -> tuple[Statement, ...]:
    """The statements of the text of a Query, by order. Empty ones are left out."""
    return tuple(map(_statement, _split(text)))


@lru_cache(CACHED)
def statement(text: str) -> Statement:
    """The statement of a Parse. An empty one has the kind ""."""
    return _statement(text.strip().rstrip(";"))


def _split(text: str) -> Iterator[str]:
    """The texts between semicolons that are not in strings or comments."""
    whole = text.strip()
    if ";" not in whole.rstrip("; \n"):
        if _without_comments(whole).rstrip("; \n"):
            yield whole.rstrip("; \n")
        return
    try:
        tokens = sqlglot.tokenize(whole, dialect="postgres")
    except SqlglotError:
        yield whole
        return
    begin: int | None = None
    end = depth = 0
    for each in tokens:
        # CREATE FUNCTION ... BEGIN ATOMIC has semicolons inside of the statement.
        depth += (begin is not None and each.text.upper() == "ATOMIC") - (
            depth > 0 and each.text.upper() == "END"
        )
        if each.token_type.name == "SEMICOLON" and not depth:
            if begin is not None:
                yield whole[begin:end]
            begin = None
        else:
            begin = each.start if begin is None else begin
            end = each.end + 1
    if begin is not None:
        yield whole[begin:end]


def _without_comments(sql: str) -> str:
    while found := _COMMENTS.match(sql):
        sql = sql[found.end() :]
    return sql.strip()


def _statement(sql: str) -> Statement:
    bare = _without_comments(sql).lstrip("( ")
    words = [each.upper() for each in _WORD.findall(bare[:80])]
    word = words[0] if words else ""
    if word in _CONTROL:
        return _control(sql, word, words)
    if word in _PARSED and len(bare) <= TEXT_CHARS:
        try:
            return _parsed(sql)
        except Exception:  # whatever sqlglot does not know, the server may
            pass
    if found := _OBJECT.match(bare):
        return Statement(sql, f"{word} {found['type'].upper()}", (_name(found["name"]),))
    if word == "COPY":
        found = _COPY.match(bare)
        kind = "COPY" if found is not None and found["way"].upper() == "FROM" else "COPY TO"
        return Statement(sql, kind, (_name(found["name"]),) if found else ())
    if found := _DIRECT.match(bare):
        conflict = _CONFLICT.search(bare)
        on_conflict = conflict["does"].lower() if conflict else ""
        return Statement(sql, word, (_name(found["name"]),), on_conflict=on_conflict)
    return Statement(sql, word, is_read=word in _READS)


_CONTROL: Final = frozenset(
    {
        *("BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "PREPARE", "EXECUTE", "DEALLOCATE"),
        *("RELEASE", "SAVEPOINT"),
    }
)


def _control(sql: str, word: str, words: list[str]) -> Statement:
    """A statement that controls transactions or prepared statements."""
    after = words[1] if len(words) > 1 else ""
    is_chained = words[-2:] == ["AND", "CHAIN"]
    match word:
        case "BEGIN" | "START":
            return Statement(sql, "BEGIN")
        case "COMMIT" | "ROLLBACK" if after == "PREPARED":
            return Statement(sql, f"{word} PREPARED")
        case "ROLLBACK" | "ABORT" if "TO" in words[1:3]:
            return Statement(sql, "ROLLBACK TO")
        case "COMMIT" | "END":
            return Statement(sql, "COMMIT", is_chained=is_chained)
        case "ROLLBACK" | "ABORT":
            return Statement(sql, "ROLLBACK", is_chained=is_chained)
        case "PREPARE" if after == "TRANSACTION":
            return Statement(sql, "PREPARE TRANSACTION")
    named = _NAMED.match(_without_comments(sql))
    return Statement(sql, word, name=named[1].strip('"') if named else "")


def prepared(sql: str) -> Statement:
    """The statement in the text of a PREPARE."""
    _, as_, body = (
        re.split(r"(\bAS\b)", sql, maxsplit=1, flags=re.IGNORECASE) if _has_as(sql) else ("", "", "")
    )
    return statement(body) if as_ else Statement(sql, "EXECUTE")


def _has_as(sql: str) -> bool:
    return re.search(r"\bAS\b", sql, re.IGNORECASE) is not None


# -- by sqlglot ------------------------------------------------------------------------------------------------------

_CHANGES: Final = (exp.Insert, exp.Update, exp.Delete, exp.Merge)
_KINDS: Final[Mapping[type[exp.Expr], str]] = {
    exp.Insert: "INSERT",
    exp.Update: "UPDATE",
    exp.Delete: "DELETE",
    exp.Merge: "MERGE",
    exp.TruncateTable: "TRUNCATE",
    exp.Values: "VALUES",
}


def _parsed(sql: str) -> Statement:
    # sqlglot reads "$1,$" as the beginning of a dollar-quoted string.
    tree = sqlglot.parse_one(_PLACEHOLDER.sub("NULL", sql), dialect="postgres")
    if isinstance(tree, exp.Command):
        raise SqlglotError(f"unknown statement: {tree.this}")
    named = {each.alias_or_name for each in tree.find_all(exp.CTE)}
    every = {_table(each) for each in tree.find_all(exp.Table)} - named - {""}
    # WHEN MATCHED THEN UPDATE of a MERGE has no table of its own.
    changes = [each for each in tree.find_all(*_CHANGES) if each.this is not None]
    changed = {_table(found) for each in changes if (found := each.this.find(exp.Table))}
    kind = _kind(tree, changes)
    into = tree.find(exp.Into)
    if into is not None:
        kind, changed = "CREATE TABLE", {_table(into.this)}
    if isinstance(tree, exp.TruncateTable):
        changed = every
    conflict = tree.find(exp.OnConflict)
    return Statement(
        sql,
        kind,
        tuple(sorted(changed or every)),
        tuple(sorted(every - changed)) if changed else (),
        tuple(each.name.lower() for each in tree.find_all(exp.Anonymous)),
        ("update" if conflict.expressions else "nothing") if conflict else "",
        any(each.args.get("returning") for each in changes),
        is_read=kind in _READS,
    )


def _kind(tree: exp.Expr, changes: Sequence[exp.Expr]) -> str:
    if type(tree) in _KINDS:
        return _KINDS[type(tree)]
    # A data-modifying WITH in front of a SELECT.
    return _KINDS[type(changes[0])] if changes else "SELECT"


def _table(table: exp.Expr) -> str:
    schema = table.args.get("db")
    name = table.name
    return f"{schema.name}.{name}" if schema and schema.name != "public" else name


def _name(said: str) -> str:
    return said.replace('"', "").removeprefix("public.")
