"""``--stage-reset``: a command of the user returns a service to its first state before each run."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.certify.judging.check import Check
from odradek.certify.services.service import Services
from odradek.certify.services.specs import StageSpec
from odradek.errors import OdradekError


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


def restored(port: int, command: str, data: Path) -> None:
    stage = StageSpec("tcp.ledger", f"127.0.0.1:{port}", reset=Check(command, data))
    services = Services([stage], [], [])
    try:
        services.start()
        services.restore(data, {"bootstrap": "127.0.0.1:9"})
    finally:
        services.close()


def test_the_command_gets_the_placeholders_and_environment_of_the_job(port: int, tmp_path: Path) -> None:
    command = 'echo {bootstrap} {data} {tcp.ledger} > found; test "$ODRADEK_TCP_LEDGER" = {tcp.ledger}'
    restored(port, command, tmp_path)
    bootstrap, data, ledger = (tmp_path / "found").read_text().split()
    assert (bootstrap, data) == ("127.0.0.1:9", str(tmp_path))
    assert re.fullmatch(r"127\.0\.0\.1:\d+", ledger)


def test_a_command_that_fails_ends_the_certification_with_its_output(port: int, tmp_path: Path) -> None:
    with pytest.raises(OdradekError) as raised:
        restored(port, "echo no such table; exit 3", tmp_path)
    assert str(raised.value) == (
        "--stage-reset tcp.ledger: echo no such table; exit 3 ended with exit code 3\nno such table"
    )
