"""The memory that the proxy holds for clients that do not read: one budget for all of them, like a broker's (ADR 13)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from broker.resources.unsent import UNSENT, WRITE_BUFFER_HIGH_BYTES, ResponseBudget
from protocol.batch import build_batch
from protocol.frame import parse_request_header
from proxy.bounded import SHARE, bounded
from proxy.forwarding import Received
from tests.proxy.test_relay import ok, until
from tests.support import raw
from tests.support.proxy import DYING, Asked, Client, Upstream, proxy_before

BUDGET: int = 32 * 1024 * 1024
ASKED: int = 57_671_680
FETCHES = {"fetch": raw.versions("fetch"), "share_fetch": raw.versions("share_fetch")}
EACH = [(api, version) for api, versions in FETCHES.items() for version in versions]


@pytest.fixture(autouse=True)
def budget(monkeypatch: pytest.MonkeyPatch) -> Iterator[ResponseBudget]:
    """The budget for unsent bytes. At the end of the test no bytes may be charged to it."""
    monkeypatch.setattr(UNSENT, "limit_bytes", BUDGET)
    yield UNSENT
    assert UNSENT.bytes == 0


def passed(api: str, version: int, asked: int) -> tuple[dict[str, Any], int]:
    """The request as the proxy forwards it, and the bytes charged for it."""
    body: dict[str, Any] = {"max_bytes": asked, "max_wait": 7, "min_bytes": 9}
    if api == "share_fetch":
        body |= {"group_id": "g", "member_id": "m" * 200}
    frame = raw.encode_request(api, version, body, 5)
    header = parse_request_header(frame)
    sent, size = bounded(header.api_key, version, Received(memoryview(frame), header.body_offset))
    assert len(sent) == len(frame)
    return raw.decode_request(api, version, bytes(sent)), size


@pytest.mark.parametrize(("api", "version"), EACH)
def test_a_fetch_asks_for_its_share_of_the_room(api: str, version: int, budget: ResponseBudget) -> None:
    as_sent, size = passed(api, version, 1000)
    assert (as_sent["max_bytes"], size) == (1000, 1000)
    for room in (BUDGET, BUDGET // 2, SHARE - 1, 0):
        budget.bytes = BUDGET - room
        less, size = passed(api, version, ASKED)
        assert less == {**as_sent, "max_bytes": max(1, room // SHARE)}
        assert size == less["max_bytes"]
    budget.bytes = 0


@pytest.mark.parametrize("asked", [0, -1])
def test_a_fetch_that_asks_for_nothing_is_charged_nothing(asked: int) -> None:
    as_sent, size = passed("fetch", 12, asked)
    assert (as_sent["max_bytes"], size) == (asked, 0)


def fetched(asked: Asked) -> dict[str, Any]:
    """A Fetch response with as many bytes of records as requested, but at least a batch of 1000 bytes."""
    size = max(asked.body["max_bytes"], 1000)
    records = build_batch([(0, None, bytes(size - 100))])
    partition = {"partition_index": 0, "error_code": 0, "high_watermark": 1, "records": records}
    topic = {"topic": "t"} if asked.version < 13 else {"topic_id": None}
    return {"responses": [{**topic, "partitions": [partition]}]}


@pytest.mark.parametrize("version", [11, 12, 17])
@pytest.mark.parametrize("arguments", [(), ("--fault", "Fetch topic=none -> delay 1s")], ids=["", "sessions"])
async def test_clients_that_take_nothing_share_one_budget(
    version: int, arguments: tuple[str, ...], budget: ResponseBudget
) -> None:
    async with (
        Upstream({"fetch": fetched, "heartbeat": ok}) as upstream,
        proxy_before(upstream, *arguments) as proxy,
        contextlib.AsyncExitStack() as stack,
    ):
        slow = [await stack.enter_async_context(Client(proxy.port(1))) for _ in range(40)]
        for client in slow:
            client.reader._transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(3):
                client.send("fetch", version, max_bytes=ASKED)
        await until(lambda: len(upstream.heard("fetch")) >= len(slow))
        opened: Any = proxy.proxy.nodes[1].connections._open
        await until(lambda: all(not each._pending for each in opened))
        held = [each._unsent.bytes for each in opened]
        assert sum(held) == budget.bytes <= BUDGET
        # A client that reads is served, with at least one batch.
        async with Client(proxy.port(1)) as neighbour:
            assert (await neighbour.ask("fetch", version, max_bytes=ASKED))["responses"]
            assert budget.bytes == sum(held)


async def test_the_budget_is_charged_while_a_response_is_under_way(budget: ResponseBudget) -> None:
    async with Upstream({"fetch": lambda asked: None}) as upstream, proxy_before(upstream) as proxy:
        async with Client(proxy.port(1)) as one, Client(proxy.port(1)) as other:
            for client in (one, other):
                client.send("fetch", 12, max_bytes=ASKED)
            await until(lambda: len(upstream.heard("fetch")) == 2)
            first, second = (each.body["max_bytes"] for each in upstream.heard("fetch"))
            assert first == BUDGET // SHARE
            assert second == (BUDGET - first) // SHARE
            assert budget.bytes == first + second
        # The ended connections return their part of the budget.
        await until(lambda: not budget.bytes)


async def test_an_upstream_that_dies_gives_back_what_was_charged(budget: ResponseBudget) -> None:
    async with (
        Upstream({"fetch": lambda asked: DYING}) as upstream,
        proxy_before(upstream) as proxy,
        Client(proxy.port(1)) as client,
    ):
        client.send("fetch", 12, max_bytes=ASKED)
        assert await client.ended()
        assert budget.bytes == 0


async def test_a_slow_reader_has_one_large_response_at_a_time() -> None:
    async with (
        Upstream({"fetch": fetched}) as upstream,
        proxy_before(upstream) as proxy,
        Client(proxy.port(1)) as client,
    ):
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(50):
            client.send("fetch", 12, max_bytes=ASKED)
        await until(lambda: len(proxy.proxy.nodes[1].connections) == 1)
        connection: Any = next(iter(proxy.proxy.nodes[1].connections._open))
        await until(lambda: connection._unsent.bytes > WRITE_BUFFER_HIGH_BYTES)
        assert len(upstream.heard("fetch")) < 50
        client.reader._transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(50):
            await client.receive_frame()
        assert len(upstream.heard("fetch")) == 50
