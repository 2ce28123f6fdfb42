"""A broker of three nodes with transactions in it, and its page in a headless Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Browser, Page, sync_playwright

import odradek
from tests.support.deadlines import HANG_S

HANG_MS = HANG_S * 1000


@dataclass
class Staged:
    """``billing`` has committed, aborted and committed; ``forgetful`` has left its transaction open in orders-0."""

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
    """Of records in orders-0; ``commit`` None leaves it open."""
    producer.begin_transaction()
    for value in values:
        producer.produce("orders", value, partition=0)
    assert producer.flush(HANG_S) == 0
    if commit is not None:
        (producer.commit_transaction if commit else producer.abort_transaction)(HANG_S)


@pytest.fixture
def staged() -> Iterator[Staged]:
    with odradek.Broker(nodes=3, topics={"orders": 2}) as broker:
        broker.trace.start()
        billing = transactional(broker, "billing")
        for commit in (True, False, True):
            transaction(billing, "a", "b", commit=commit)
        forgetful = transactional(broker, "forgetful")
        transaction(forgetful, "c", commit=None)
        transaction(billing, "d")
        yield Staged(broker, billing, forgetful)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Until a module ends: while Playwright runs, an event loop runs in this thread, and other tests have their own."""
    with sync_playwright() as playwright:
        # The tests of a container run as root, for whom Chromium has no sandbox.
        found = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield found
        found.close()


Open = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser, staged: Staged) -> Iterator[Open]:
    """Open a view of the page. An error in the page's scripts fails the test."""
    errors: list[str] = []
    contexts = []

    def open_(view: str, *, url: str | None = None, **options: object) -> Page:
        context = browser.new_context(bypass_csp=bool(options.pop("bypass_csp", False)), **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(HANG_MS)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{url or staged.broker.control_url}/#/{view}")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert errors == []
