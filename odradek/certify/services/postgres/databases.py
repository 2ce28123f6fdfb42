"""The databases of a PostgreSQL stage: each run begins with a new copy of a template.

The template is a copy of the user's database, plus the setup script and the rows of the inputs; the user's database is
never changed. A thread creates the database of the next run while a run is in progress, and drops the previous one.

All sessions of one `Databases` have its prefix as ``application_name``. Databases whose prefix no session has are left by
a certifier that was killed; the next one drops them.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import errors, sql
from psycopg.adapt import Loader
from psycopg.types.json import set_json_loads
from psycopg.types.string import TextLoader

from odradek.certify.services.specs import Feed, ServiceOutput
from odradek.certify.services.values import key_of, loads, number, row
from odradek.deadlines import stretched
from odradek.errors import OdradekError
from odradek.topics import Record
from odradek.warning import warn

OLDEST: Final = 13
"""The first major version with DROP DATABASE ... WITH (FORCE)."""
CONNECT_S: Final = 10
CLEAR_S: Final = stretched(10.0)
"""How long the sessions of a run may take to end after pg_terminate_backend, in seconds."""
CLEAR_PAUSE_S: Final = 0.002
IDLE_S: Final = 1
"""Seconds without a statement after which an open transaction counts as forgotten. A shorter one is in progress."""
_MAINTENANCE: Final = ("postgres", "template1")
"""Databases for CREATE DATABASE, which needs a session in another database than the template."""
_LISTS: Final = frozenset(
    {"search_path", "temp_tablespaces", "local_preload_libraries", "session_preload_libraries"}
)
"""Settings that are lists of identifiers. pg_db_role_setting contains them with quotes."""

_READER: Final = """
SET default_transaction_read_only = on; SET lock_timeout = '1s';
SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'iso_8601'; SET bytea_output = 'hex'
"""
_LEFT: Final = """
SELECT format('SELECT pg_terminate_backend(%s)', pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type IN ('client backend', 'walsender')
UNION ALL
SELECT format('ROLLBACK PREPARED %L', gid) FROM pg_prepared_xacts WHERE database = current_database()
UNION ALL
SELECT format('SELECT pg_drop_replication_slot(%L)', slot_name) FROM pg_replication_slots
WHERE database = current_database() AND NOT temporary
"""
"""Statements that end what a run has left. Names of prepared transactions and of slots are unique in the whole server."""
_LOCKED: Final = """
(SELECT coalesce(' (' || string_agg(DISTINCT mode || ' on ' || relname, ', ') || ')', '')
FROM pg_locks JOIN pg_class c ON c.oid = relation WHERE {of} AND granted AND relkind IN ('r', 'p') AND relation >= 16384)
"""
_OF_PREPARED: Final = """
pid IS NULL AND virtualtransaction = (SELECT min(virtualtransaction) FROM pg_locks
    WHERE locktype = 'transactionid' AND transactionid = x.transaction AND granted)
"""
_OPEN: Final = f"""
SELECT 'prepared transaction ' || gid || ' of ' || owner || ', since ' || prepared || ', holds its locks'
    || {_LOCKED.format(of=_OF_PREPARED)}
FROM pg_prepared_xacts x WHERE database = current_database()
UNION ALL
SELECT 'session ' || a.pid || ' of ' || usename || ' is idle in a transaction since ' || state_change || ', holds its locks'
    || {_LOCKED.format(of="pid = a.pid")} || ': ' || query
FROM pg_stat_activity a
WHERE datname = current_database() AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'
    AND backend_xid IS NOT NULL AND state_change < clock_timestamp() - interval '{IDLE_S} s'
"""
_ABANDONED: Final = """
SELECT datname FROM pg_database WHERE datname ~ '^odradek_[0-9a-f]{8}(_[0-9]+|_template)?$' AND NOT EXISTS (
    SELECT FROM pg_stat_activity WHERE application_name = substring(pg_database.datname from 1 for 16))
"""

_SKIP: Final = "SELECT nextval(seqrelid::regclass) FROM pg_sequence"
"""Takes a value from each sequence. Each second run begins so: a rolled back transaction takes values too, so that columns
of a sequence differ from run to run. The two runs without faults have to show which these are."""

_Session = psycopg.Connection[tuple[Any, ...]]


class Databases:
    """The databases of one stage. `next` and `close` are called by one thread at a time."""

    def __init__(self, dsn: str, setup: Path | None) -> None:
        self._dsn, self._setup = dsn, setup
        self._prefix = f"odradek_{secrets.token_hex(4)}"
        self._template = f"{self._prefix}_template"
        self._maintenance = ""
        self._settings: list[tuple[str, str]] = []
        """Settings of the user's database (ALTER DATABASE ... SET), which CREATE DATABASE does not copy."""
        self._worker = ThreadPoolExecutor(1, "odradek-databases")
        self._sessions = contextlib.ExitStack()
        self._readers: dict[str, _Session] = {}
        """A session in the database of each run, for outputs: that of the current run and that of the next."""
        self._current = ""
        self._number = 0

    def prepare(self, feeds: Sequence[Feed]) -> None:
        """Create the template. Raises `OdradekError` with the reason if that is not possible."""
        source = self._look_at_source()
        self._maintenance = next(each for each in _MAINTENANCE if each != source)
        with self._session(self._maintenance) as session:
            self._drop_abandoned(session)
            # Sessions in a database of our own do not disturb who copies one of _MAINTENANCE.
            with _failures("cannot create a database", session.info.user):
                _execute(session, "CREATE DATABASE {} TEMPLATE template0", self._prefix)
            self._admin = self._sessions.enter_context(contextlib.closing(self._session(self._prefix)))
        self._copy_source(source)
        with self._session(self._template) as session:
            self._run_setup(session)
            for feed in feeds:
                _insert(session, feed)
        _execute(self._admin, "ALTER DATABASE {} ALLOW_CONNECTIONS false", self._template)
        self._ahead: Future[str] = self._worker.submit(self._create_next)

    def next(self) -> str:
        """The database of the next run. Ends the sessions of the current run; its database is dropped later."""
        if self._current:
            self._clear(self._current)
            self._readers.pop(self._current).close()
        self._current, previous = self._ahead.result(), self._current
        self._ahead = self._worker.submit(self._create_next)
        if previous:
            self._worker.submit(self._drop, previous)
        return self._current

    def close(self) -> None:
        """Drop all databases that this object has created. Warns of those that cannot be dropped."""
        self._worker.shutdown(cancel_futures=True)
        for name in list(self._readers):
            with contextlib.suppress(OdradekError, psycopg.Error):
                self._clear(name)
            self._readers[name].close()
        if not self._maintenance:
            return
        try:
            with self._session(self._maintenance) as session:
                self._sessions.close()
                _drop_all(session, self._names(session))
                left = self._names(session)
        except (OdradekError, psycopg.Error):
            left = [self._prefix]
        if left:
            warn(f"databases that could not be dropped: {', '.join(left)}", RuntimeWarning)

    def _names(self, session: _Session) -> list[str]:
        found = session.execute(
            "SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [self._prefix]
        )
        return [name for (name,) in found]

    # -- outputs -------------------------------------------------------------------------------------------------

    def records(self, output: ServiceOutput, database: str) -> list[Record]:
        """The rows of a query. The key is the first column.

        There are none while a table does not exist yet, or an open transaction has locked it.
        """
        try:
            cursor = self._reader(database).execute(output.what.encode())
        except (errors.UndefinedTable, errors.LockNotAvailable):
            return []
        except psycopg.Error as error:
            raise OdradekError(f"--output {output.label}: {_message(error)}") from None
        if cursor.description is None:
            raise OdradekError(f"--output {output.label}: not a query that returns rows")
        names = [each.name for each in cursor.description]
        if len(names) != len(set(names)):
            raise OdradekError(f"--output {output.label}: two columns have the same name: name them with AS")
        return [
            row(output.label, number, dict(zip(names, values, strict=True)), key_of(values[0]))
            for number, values in enumerate(cursor)
        ]

    def open_transactions(self, database: str) -> list[str]:
        """A sentence for each prepared transaction, and for each open one that has written and is idle for `IDLE_S`."""
        with _failures(f"database {database}"):
            return [sentence for (sentence,) in self._reader(database).execute(_OPEN)]

    def _reader(self, name: str) -> _Session:
        if name not in self._readers or self._readers[name].closed:
            self._readers[name] = session = self._session(name)
            _use_canonical_text(session)
            session.execute(_READER)
        return self._readers[name]

    # -- databases -----------------------------------------------------------------------------------------------

    def _session(self, database: str | None = None) -> _Session:
        where: dict[str, Any] = {} if database is None else {"dbname": database}
        try:
            return psycopg.connect(
                self._dsn,
                autocommit=True,
                application_name=self._prefix,
                client_encoding="UTF8",
                connect_timeout=CONNECT_S,
                **where,
            )
        except psycopg.Error as error:
            raise OdradekError(f"cannot connect to PostgreSQL: {_message(error)}") from None

    def _look_at_source(self) -> str:
        with self._session() as session:
            version = session.info.server_version // 10_000
            if version < OLDEST:
                raise OdradekError(f"PostgreSQL {OLDEST} or newer is needed, not {version}")
            found = session.execute(
                "SELECT unnest(setconfig) FROM pg_db_role_setting JOIN pg_database d ON d.oid = setdatabase"
                " WHERE setrole = 0 AND datname = current_database()"
            )
            self._settings = [tuple(each.split("=", 1)) for (each,) in found]
            return session.info.dbname

    def _copy_source(self, source: str) -> None:
        role = self._admin.info.user
        try:
            self._create(self._template, source)
        except errors.ObjectInUse:
            sessions = self._admin.execute(
                "SELECT pid || ' (' || coalesce(nullif(application_name, ''), backend_type) || ', ' || usename || ')'"
                " FROM pg_stat_activity WHERE datname = %s",
                [source],
            )
            said = ", ".join(each for (each,) in sessions)
            raise OdradekError(
                f"database {source} cannot be copied while other sessions use it: end them, or name a database that"
                f" nobody uses: {said}"
            ) from None
        except psycopg.Error as error:
            raise OdradekError(
                f"cannot copy the database {source} as role {role}, which must own it: {_message(error)}"
            ) from None

    def _create(self, name: str, template: str) -> None:
        _execute(self._admin, "CREATE DATABASE {} TEMPLATE {}", name, template)
        for setting, value in self._settings:
            literal = sql.SQL(value) if setting in _LISTS else sql.Literal(value)
            _execute(self._admin, "ALTER DATABASE {} SET {} TO {}", name, setting, literal)

    def _create_next(self) -> str:
        self._number += 1
        name = f"{self._prefix}_{self._number}"
        with _failures(f"cannot create the database {name}"):
            self._create(name, self._template)
            if self._number % 2 == 0:
                with self._session(name) as session, contextlib.suppress(psycopg.Error):
                    session.execute(_SKIP)
            self._reader(name)
        return name

    def _drop(self, name: str) -> None:
        with contextlib.suppress(psycopg.Error):  # `close` tries again, and reports it
            _execute(self._admin, "DROP DATABASE {} WITH (FORCE)", name)

    def _clear(self, name: str) -> None:
        """End the sessions in a database, its prepared transactions and its replication slots."""
        session = self._reader(name)
        deadline = time.monotonic() + CLEAR_S
        with _failures(f"cannot clear the database {name}"):
            while left := session.execute(_LEFT).fetchall():
                for (statement,) in left:
                    # In use until the session has ended, which takes a moment.
                    with contextlib.suppress(errors.ObjectInUse, errors.ObjectNotInPrerequisiteState):
                        session.execute(statement)
                if time.monotonic() > deadline:
                    raise OdradekError(f"cannot clear the database {name} within {CLEAR_S:g} s: {left[0][0]}")
                time.sleep(CLEAR_PAUSE_S)

    def _drop_abandoned(self, session: _Session) -> None:
        _drop_all(session, [name for (name,) in session.execute(_ABANDONED)])

    # -- the template --------------------------------------------------------------------------------------------

    def _run_setup(self, session: _Session) -> None:
        if self._setup is None:
            return
        script = self._setup.read_bytes()
        try:
            session.execute(script)
        except psycopg.Error as error:
            position = int(error.diag.statement_position or 0)
            line = script.decode("utf-8", "replace")[:position].count("\n") + 1
            place = f"{self._setup}:{line}" if position else str(self._setup)
            raise OdradekError(f"--stage-setup: {place}: {_message(error)}") from None


def _insert(session: _Session, feed: Feed) -> None:
    """Insert the rows of an input. PostgreSQL converts each JSON value to the type of its column."""
    with session.transaction():
        for number, line in enumerate(feed.path.read_text("utf-8").splitlines(), 1):
            if not line.strip():
                continue
            try:
                found = json.loads(line)
                if not isinstance(found, dict):
                    raise ValueError("expected a JSON object")
                columns = sql.SQL(", ").join(map(sql.Identifier, found))
                session.execute(
                    sql.SQL(
                        "INSERT INTO {0} ({1}) SELECT {1} FROM json_populate_record(NULL::{0}, %s)"
                    ).format(sql.SQL(feed.what), columns),
                    [line],
                )
            except (ValueError, psycopg.Error) as error:
                said = _message(error) if isinstance(error, psycopg.Error) else error
                raise OdradekError(
                    f"--input {feed.stage}:{feed.what}: {feed.path}:{number}: {said}"
                ) from None


def _drop_all(session: _Session, names: Sequence[str]) -> None:
    for name in names:
        with contextlib.suppress(psycopg.Error):
            _execute(session, "DROP DATABASE {} WITH (FORCE)", name)


def _execute(session: _Session, statement: str, *names: str | sql.Composable) -> None:
    """Execute a statement that has names of objects for ``{}``."""
    filled = [each if isinstance(each, sql.Composable) else sql.Identifier(each) for each in names]
    session.execute(sql.SQL(statement).format(*filled))


@contextlib.contextmanager
def _failures(what: str, role: str = "") -> Iterator[None]:
    try:
        yield
    except errors.InsufficientPrivilege as error:
        hint = f" (ALTER ROLE {role} CREATEDB)" if role else ""
        raise OdradekError(f"{what}: {_message(error)}{hint}") from None
    except psycopg.Error as error:
        raise OdradekError(f"{what}: {_message(error)}") from None


def _message(error: psycopg.Error) -> str:
    said = error.diag.message_primary or " ".join(str(error).split())
    return f"{said}: {error.diag.message_detail}" if error.diag.message_detail else said


# -- values ------------------------------------------------------------------------------------------------------


class _NumberLoader(Loader):
    def load(self, data: Any) -> object:
        return number(bytes(data).decode())


def _use_canonical_text(session: _Session) -> None:
    """Load numbers and JSON as JSON values, arrays as lists, and everything else as PostgreSQL's text."""
    kept = {"bool", "int2", "int4", "int8", "oid", "json", "jsonb"}
    for each in session.adapters.types:
        if each.name in ("numeric", "float4", "float8"):
            session.adapters.register_loader(each.oid, _NumberLoader)
        elif each.name not in kept:
            session.adapters.register_loader(each.oid, TextLoader)
    set_json_loads(loads, session)
