"""A PostgreSQL with logical decoding, in a directory of its own, for tests of change data capture.

with Postgres() as database:
    database.execute("CREATE TABLE orders (id bigint PRIMARY KEY)")
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

from tests.support.deadlines import HANG_S
from tests.support.raw import free_port

USER = "postgres"
SETTINGS = {"wal_level": "logical", "fsync": "off", "listen_addresses": "127.0.0.1", "max_connections": "20"}


def programs() -> Path | None:
    """Folder of PostgreSQL's programs, which Debian does not add to PATH. None if it is not installed."""
    found = [Path(program).parent for program in [shutil.which("initdb")] if program]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((each for each in found if (each / "initdb").exists() and (each / "psql").exists()), None)


class Postgres:
    """Context manager for a server.

    If the tests run as root, the server runs as the user of Debian's package, because PostgreSQL refuses to run as
    root.
    """

    def __init__(self) -> None:
        found = programs()
        assert found is not None, "needs PostgreSQL (Debian's package postgresql)"
        self._programs = found
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        self.port = free_port()
        self._as_user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        if os.geteuid() != 0:
            self._as_user = []
        else:
            shutil.chown(self._folder, USER, USER)

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [*self._as_user, str(self._programs / program), *arguments],
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=HANG_S,
        )
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"
        return done.stdout

    def __enter__(self) -> Postgres:
        data, log = self._folder / "data", self._folder / "log"
        self._run(
            "initdb", "-D", str(data), "-U", USER, "-A", "trust", "--no-sync", "--no-locale", "-E", "UTF8"
        )
        settings = SETTINGS | {"port": str(self.port), "unix_socket_directories": str(self._folder)}
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        # The server logs to a file: with a pipe of ours as its output, the pipe would stay open.
        self._run("pg_ctl", "start", "-w", "-D", str(data), "-l", str(log), "-o", options)
        return self

    def execute(self, statement: str) -> str:
        place = ["-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", "postgres"]
        return self._run("psql", *place, "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-c", statement)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run("pg_ctl", "stop", "-m", "immediate", "-D", str(self._folder / "data"))
        shutil.rmtree(self._folder)
