"""``--stage``, ``--output`` and ``--input`` for services besides Kafka, parsed."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odradek.certify.judging.check import Check
from odradek.extras import install_command

if TYPE_CHECKING:
    from odradek.certify.services.service import Service

KINDS: Final = {"postgres": "postgres", "http": "http", "tcp": ""}
"""Kinds of services, with the extra whose packages each needs."""
PLACEHOLDERS: Final = {
    "postgres": ("host", "port", "user", "password", "database", "jdbc"),
    "http": ("host", "port"),
    "tcp": ("host", "port"),
}
"""By kind, the parts of the address that are placeholders too: ``{postgres.jdbc}``, and ODRADEK_POSTGRES_JDBC."""
PORT: Final = "port"
"""Placeholder for a free port of each run, at which the job serves the requests of an ``--input http:...``."""
FILES: Final = "files"
_REQUEST: Final = re.compile(r"[A-Z]+ http://[\w.-]+:\{port\}(/[!-~]*)?")
_NAME: Final = r"(?:postgres|http|tcp)(?:\.[A-Za-z_][A-Za-z0-9_-]*)?"


@dataclass(frozen=True, slots=True)
class StageSpec:
    """One ``--stage NAME=ADDRESS``: the certifier's proxy in front of a service."""

    name: str
    """The kind, or the kind and a name of the user, such as ``http.payments``."""
    address: str
    """A DSN, a URL, or HOST:PORT. ``$NAME`` is an environment variable: certificates contain the name, not a password."""
    setup: Path | None = None
    """A SQL script that prepares the database with which each run begins (``--stage-setup postgres=FILE``)."""
    reset: Check | None = None
    """A shell command that returns the service to its first state before each run (``--stage-reset http=COMMAND``)."""

    @classmethod
    def parse(cls, said: str) -> StageSpec:
        name, equals, address = said.partition("=")
        if not equals or not address or not re.fullmatch(_NAME, name):
            raise ValueError(
                f"{said!r}: expected postgres=DSN, http=URL or tcp=HOST:PORT, or http.NAME=URL for a second service"
            )
        return cls(name, os.path.expandvars(address))

    @property
    def kind(self) -> str:
        return self.name.partition(".")[0]

    @property
    def is_shared(self) -> bool:
        """Whether all runs use the same state of the service, so that only one run at a time is possible."""
        return self.kind != "postgres"

    @property
    def placeholders(self) -> tuple[str, ...]:
        """Names that the job's command may contain in braces."""
        return (self.name, *(f"{self.name}.{each}" for each in PLACEHOLDERS[self.kind]))

    def service(self, loop: asyncio.AbstractEventLoop) -> Service:
        """Create the service. Raises ``ValueError`` if a package is missing, or the address is invalid."""
        try:
            module = import_module(f"odradek.certify.services.{self.kind}")
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("odradek"):
                raise
            command = install_command(KINDS[self.kind])
            raise ValueError(
                f"--stage {self.name} needs {error.name}, which is not installed: {command}"
            ) from None
        service: Service = module.service(self, loop)
        return service


@dataclass(frozen=True, slots=True)
class ServiceOutput:
    """An ``--output`` that is not a topic: rows, applied requests, or files."""

    stage: str
    """Name of the stage; empty for files."""
    what: str
    """The SQL query, ``POST /v1/payments``, or a glob pattern of files relative to the run's directory."""
    key: str = ""
    """The field of a request's body that is the key (``http:POST /v1/payments#order``); empty for the default."""

    @property
    def label(self) -> str:
        """The name of the output in findings and evidence."""
        return f"{self.stage or FILES}:{self.what}"


def is_service(output: str) -> bool:
    """Whether an ``--output`` or ``--input`` is not a topic: topics contain no colon."""
    return ":" in output


def parse_output(said: str, stages: Sequence[StageSpec]) -> ServiceOutput:
    """Parse ``postgres:SELECT ...``, ``http:POST /path`` or ``files:PATTERN``. Raises ``ValueError``."""
    name, _, what = said.partition(":")
    what = what.strip()
    if name == FILES and what:
        from odradek.certify.services.files import check_pattern

        check_pattern(what)
        return ServiceOutput("", what)
    _check(name, what, "--output", said, stages)
    kind = name.partition(".")[0]
    if kind == "tcp":
        raise ValueError(f"--output {said!r}: the content of a TCP connection is not known")
    if kind == "http":
        if not re.fullmatch(r"[A-Z]+ /\S*", what):
            raise ValueError(
                f"--output {said!r}: expected {name}:METHOD /path, such as {name}:POST /v1/payments"
            )
        path, _, key = re.sub(r"\{\w+\}", "{}", what).partition("#")
        return ServiceOutput(name, path, key)
    return ServiceOutput(name, what)


@dataclass(frozen=True, slots=True)
class Feed:
    """An ``--input`` that is not a topic: rows of a table, requests to the job's own port, or files.

    ``postgres:TABLE=FILE`` (NDJSON, an object per row), ``http:POST http://127.0.0.1:{port}/orders=FILE`` (NDJSON, a body
    per line), ``files:DIRECTORY=FOLDER``.
    """

    stage: str
    """Name of the stage; ``files``, or ``http`` for requests to the job."""
    what: str
    """Table, method and URL, or the directory below the run's directory."""
    path: Path


def parse_input(said: str, directory: Path, stages: Sequence[StageSpec]) -> Feed:
    """Parse an ``--input``. Relative paths are relative to ``directory``. Raises ``ValueError``."""
    name, _, rest = said.partition(":")
    # A URL may contain =, and so may a path such as day=1/orders.csv.
    what, equals, path = rest.rpartition("=") if name == "http" else rest.partition("=")
    if not equals or not what or not path:
        raise ValueError(
            f"--input {said!r}: expected postgres:TABLE=FILE, http:POST URL=FILE or files:DIRECTORY=FOLDER"
        )
    what = what.strip()
    if name == "http":
        if not _REQUEST.fullmatch(what):
            raise ValueError(f"--input {said!r}: expected http:POST http://127.0.0.1:{{port}}/PATH=FILE")
    elif name == FILES:
        if what.startswith("/") or ".." in Path(what).parts:
            raise ValueError(f"--input {said!r}: expected a directory below the run's directory")
    else:
        _check(name, what, "--input", said, [each for each in stages if each.kind == "postgres"])
    source = directory / path
    if not source.exists():
        raise ValueError(f"--input: there is no file {source}")
    return Feed(name, what, source)


def _check(name: str, what: str, option: str, said: str, stages: Sequence[StageSpec]) -> None:
    known = [each.name for each in stages]
    if name not in known or not what:
        names = ", ".join([*known, FILES])
        raise ValueError(f"{option} {said!r}: expected NAME:..., where NAME is a --stage or files: {names}")
