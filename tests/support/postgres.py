"""A PostgreSQL server of a test: on a free loopback port, with a data directory of its own, for real databases and logical
decoding.

with PostgresServer() as server:
    server.execute("CREATE TABLE orders (id bigint PRIMARY KEY)")
    psycopg.connect(server.dsn)

The fixture ``postgres`` shares one server among the tests of a worker. Tests that use it have the mark of the same name,
which deselects them where no PostgreSQL is installed.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from tests.support.deadlines import HANG_S, Deadline
from tests.support.raw import free_port

OLDEST: Final = 13
HOST: Final = "127.0.0.1"
USER: Final = "odradek"
"""A superuser."""
PASSWORD: Final = "secret"
DATABASE: Final = "postgres"
ACCOUNTS: Final = ("postgres", "nobody")
"""Accounts of the system for the server if the tests run as root, because PostgreSQL refuses to run as root."""
SETTINGS: Final = {
    "listen_addresses": HOST,
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "wal_level": "logical",
    "max_connections": "200",
    "max_prepared_transactions": "64",
    "max_replication_slots": "64",
    "max_wal_senders": "64",
}


class NoPostgres(Exception):
    """PostgreSQL cannot be started on this machine. The text is one sentence."""


@cache
def programs() -> Path | None:
    """Folder of PostgreSQL's programs, which Debian does not add to PATH. None if it is not installed."""
    on_path = shutil.which("initdb")
    debian = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda bin: int(bin.parent.name), reverse=True
    )
    found = [*([Path(on_path).parent] if on_path else []), *debian]
    return next((each for each in found if (each / "initdb").exists() and (each / "psql").exists()), None)


def _account() -> pwd.struct_passwd | None:
    """The account that the server runs as; None for the one that runs the tests."""
    if os.geteuid() != 0:
        return None
    for name in ACCOUNTS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NoPostgres(
        f"PostgreSQL does not run as root, and there is none of the accounts {', '.join(ACCOUNTS)}."
    )


class PostgresServer:
    """Context manager for a server with scram-sha-256 authentication.

    ``settings`` are added to `SETTINGS`. ``files`` are written beside the data directory, readable for the server alone.
    """

    def __init__(
        self, settings: Mapping[str, str] | None = None, files: Mapping[str, bytes] | None = None
    ) -> None:
        found = programs()
        if found is None:
            raise NoPostgres(
                f"There is no PostgreSQL {OLDEST} or newer here: install Debian's package postgresql."
            )
        self._programs = found
        self._account = _account()
        self._settings = SETTINGS | dict(settings or {})
        self._files = {"password": PASSWORD.encode(), **(files or {})}
        self._process: subprocess.Popen[bytes] | None = None
        version = self._run("postgres", "--version", cwd=Path("/"))
        if int(re.findall(r"\d+", version)[0]) < OLDEST:
            raise NoPostgres(f"{found} has {version.strip()}: version {OLDEST} or newer is needed.")
        self.port = free_port()

    @property
    def dsn(self) -> str:
        return f"postgresql://{USER}:{PASSWORD}@{HOST}:{self.port}/{DATABASE}"

    @property
    def pid(self) -> int:
        """Process id of the server's first process, the postmaster."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text("utf-8", "replace")

    def __enter__(self) -> PostgresServer:
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        for name, content in self._files.items():
            (self._folder / name).touch(mode=0o600)
            (self._folder / name).write_bytes(content)
        if self._account:
            for path in (self._folder, *self._folder.iterdir()):
                os.chown(path, self._account.pw_uid, self._account.pw_gid)
        try:
            self._run(
                "initdb", *("-D", "data", "-U", USER, "-A", "scram-sha-256", "--pwfile", "password"),
                *("-E", "UTF8", "--no-locale", "--no-sync", "--no-instructions"),
            )  # fmt: skip
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._folder)

    def start(self) -> None:
        """Start the server, at first or after ``stop``, and wait until it accepts connections."""
        settings = self._settings | {"port": str(self.port), "unix_socket_directories": str(self._folder)}
        options = [f"--{name}={value}" for name, value in settings.items()]
        # To a file: nobody reads a pipe.
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", "data", *options],
                **self._place(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = Deadline()
        while not self._is_ready():
            assert self._process.poll() is None, f"PostgreSQL did not start:\n{self.log}"
            deadline.check(f"PostgreSQL accepts connections on port {self.port}")

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """Stop the server: at once (SIGQUIT, recovers at the next start), or after it has ended its sessions (SIGINT)."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(HANG_S)
            self._process = None

    def execute(self, statement: str, database: str = DATABASE) -> str:
        """Output of psql for a statement: lines of values with ``|`` between them."""
        dsn = f"{self.dsn.removesuffix(DATABASE)}{database}"
        # --no-psqlrc: the account may have one.
        options = ("--no-psqlrc", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1")
        return self._run("psql", *options, "-c", statement, dsn)

    def _is_ready(self) -> bool:
        # It waits by itself for a server that is starting.
        ready = [str(self._programs / "pg_isready"), "-q", "-h", HOST, "-p", str(self.port)]
        return subprocess.run(ready, timeout=HANG_S).returncode == 0

    def _place(self) -> dict[str, Any]:
        """Folder and account of the server's processes, as options for ``subprocess``."""
        account = self._account
        as_account = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if account else {}
        return {"cwd": self._folder, **as_account}

    def _run(self, program: str, *arguments: str, **place: Any) -> str:
        done = subprocess.run(
            [self._programs / program, *arguments],
            **(place or self._place()),
            capture_output=True,
            text=True,
            timeout=HANG_S,
        )
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"
        return done.stdout
