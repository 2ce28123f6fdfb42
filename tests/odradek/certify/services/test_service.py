"""The services of one run."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.certify.services.calls import Traffic
from odradek.certify.services.service import Services


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("INSERT INTO results VALUES (1)", False),
        ("prepare transaction 'order-1'", True),
        ('CREATE_REPLICATION_SLOT "debezium" LOGICAL pgoutput', True),
        ("SELECT pg_create_logical_replication_slot('relay', 'pgoutput')", True),
    ],
)
async def test_names_that_are_unique_in_a_server(statement: str, *, expected: bool) -> None:
    services = Services((), (), ())
    traffic = Traffic(asyncio.get_running_loop())
    services._services["postgres"] = cast(Any, SimpleNamespace(traffic=traffic))
    traffic.arrived("postgres:any", "autocommit", "127.0.0.1:5", statement, is_write=True)
    assert services.has_server_wide_names is expected


def test_an_error_of_one_service_does_not_keep_the_others_open() -> None:
    closed: list[str] = []

    def fails() -> None:
        raise ConnectionError

    services = Services((), (), ())
    services._services |= {
        "one": cast(Any, SimpleNamespace(close=lambda: closed.append("one"))),
        "two": cast(Any, SimpleNamespace(close=fails)),
        "three": cast(Any, SimpleNamespace(close=lambda: closed.append("three"))),
    }
    with pytest.raises(ConnectionError):
        services.close()
    assert sorted(closed) == ["one", "three"]
