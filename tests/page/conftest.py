"""A broker of three nodes with transactions, and its control page in a headless Chromium."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Browser, Page

import odradek
from tests.support.chromium import chromium, new_page, opened
from tests.support.deadlines import HANG_S


@dataclass
class Staged:
    """A broker with two transactional producers, ``billing`` and ``forgetful``, which write to orders-0.

    ``billing`` has committed, aborted and committed a transaction. Then both have begun one, which is open.
    """

    broker: odradek.Broker
    billing: Producer
    forgetful: Producer


def transactional(broker: odradek.Broker, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": transactional_id,
            "client.id": transactional_id,
        }
    )
    producer.init_transactions(HANG_S)
    return producer


def transaction(producer: Producer, *values: str, commit: bool | None = True) -> None:
    """Write records to orders-0 in a transaction, and commit or abort it, or leave it open if ``commit`` is None."""
    producer.begin_transaction()
    for value in values:
        producer.produce("orders", value, partition=0)
    assert producer.flush(HANG_S) == 0
    if commit is not None:
        (producer.commit_transaction if commit else producer.abort_transaction)(HANG_S)


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker(nodes=3, topics={"orders": 2}) as found:
        yield found


@pytest.fixture
def staged(broker: odradek.Broker) -> Iterator[Staged]:
    broker.reset()
    broker.trace.start()
    found = Staged(broker, transactional(broker, "billing"), transactional(broker, "forgetful"))
    for commit in (True, False, True):
        transaction(found.billing, "a", "b", commit=commit)
    transaction(found.forgetful, "c", commit=None)
    transaction(found.billing, "d")
    yield found
    # Playwright keeps the frames of a test until a garbage collection. The producers would reconnect in the next test.
    del found.billing, found.forgetful


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for one module, as other modules have event loops of their own."""
    with chromium() as found:
        yield found


Open = Callable[..., Page]


@pytest.fixture(scope="module")
def shared_page(browser: Browser) -> Iterator[Page]:
    """A page that tests use one after the other: a new one for each test would cost half a second of CPU."""
    with new_page(browser) as page:
        yield page


@pytest.fixture
def open_page(browser: Browser, shared_page: Page, staged: Staged) -> Iterator[Open]:
    """A function that opens a view, once in a test, and with options in a page of its own.

    An error in the page's scripts fails the test.
    """
    with ExitStack() as stack:

        def open_(view: str, *, url: str | None = None, **options: Any) -> Page:
            page = stack.enter_context(new_page(browser, **options)) if options else shared_page
            return stack.enter_context(opened(page, url or staged.broker.control_url, view))

        yield open_
