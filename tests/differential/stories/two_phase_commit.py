"""InitProducerId v6 (KIP-939), which brokers with ``unstable.api.versions.enable`` serve."""

from __future__ import annotations

from typing import Any

from tests.differential.stories.transactional import Producer
from tests.differential.story import LONG_POLL_MS, Body, Story, story
from tests.support import raw

FLAGS: list[dict[str, bool]] = [
    {},
    {"enable2_pc": True},
    {"keep_prepared_txn": True},
    {"enable2_pc": True, "keep_prepared_txn": True},
]
TIMEOUTS_MS = (-1, 0, 900_000, 900_001)


def init(s: Story, transactional_id: str | None, timeout_ms: int = 60_000, **more: Any) -> Body:
    """Send InitProducerId v6 with ``more`` fields."""
    note = ", ".join((f"{timeout_ms} ms", *more))
    body = {"transactional_id": transactional_id, "transaction_timeout": timeout_ms, **more}
    return s.ask("init_producer_id", 6, retry=(14, 15, 16), note=note, **body)


def announced(s: Story) -> None:
    """Record the versions of InitProducerId that ApiVersions announces."""
    rows = s.quiet("api_versions", 4, client_software_name="raw", client_software_version="1")["api_keys"]
    [row] = [row for row in rows if row["api_key"] == raw.API_KEYS["init_producer_id"]]
    s.put("announced", row)


def refusals(s: Story) -> None:
    for number, flags in enumerate(FLAGS):
        init(s, None, **flags)
        init(s, "", 0, **flags)
        init(s, s.name("half"), 0, producer_id=7, **flags)
        for timeout_ms in TIMEOUTS_MS:
            init(s, s.name(f"{number}-{timeout_ms}"), timeout_ms, **flags)


@story("two-phase-commit", "two-phase-commit")
def requests(s: Story) -> None:
    """With enable2_pc every timeout is valid; keep_prepared_txn gets UNSUPPORTED_VERSION, before the timeout is checked."""
    announced(s)
    refusals(s)


@story("two-phase-commit", "noauto")
def requests_where_it_is_disabled(s: Story) -> None:
    """Without transaction.two.phase.commit.enable, enable2_pc gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED, first."""
    announced(s)
    refusals(s)


@story("two-phase-commit")
def requests_where_the_version_is_disabled(s: Story) -> None:
    """Without unstable.api.versions.enable the connection is closed at version 6."""
    announced(s)
    s.try_ask("init_producer_id", 6, transactional_id=None, transaction_timeout=60_000)


@story("two-phase-commit", "two-phase-commit")
def a_later_version(s: Story) -> None:
    frame = raw.encode_request("init_producer_id", 6, {"transactional_id": None, "transaction_timeout": 1}, 1)
    s.raw("version 7", frame[:2] + (7).to_bytes(2, "big") + frame[4:])


@story("two-phase-commit", "two-phase-commit")
def no_timeout(s: Story) -> None:
    """A transaction with two-phase commit stays open when another one, with the same timeout, is aborted."""
    t, other = s.topic(), s.topic()
    kept, aborted = Producer(s, "kept", timeout=300), Producer(s, "aborted", timeout=300)
    answer = init(s, kept.tx, 300, enable2_pc=True)
    kept.pid, kept.epoch = answer["producer_id"], answer["producer_epoch"]
    kept.start(t)
    aborted.start(other)
    s.fetch(other, isolation_level=1, max_wait=LONG_POLL_MS, note="the broker aborts")
    s.settle(aborted.tx)
    described = s.quiet("describe_transactions", 0, transactional_ids=[kept.tx, aborted.tx])
    rows = described["transaction_states"]
    s.put("described", [(row["transaction_state"], row["transaction_timeout"]) for row in rows])
    kept.send(t, 1)
    kept.end(True)
    s.fetch(t, isolation_level=1)


@story("two-phase-commit", "two-phase-commit")
def a_new_instance(s: Story) -> None:
    """A new instance aborts the open transaction, with or without two-phase commit, and has its own timeout."""
    t, p = s.topic(), Producer(s, "tx")
    for first, second in (({"enable2_pc": True}, {}), ({}, {"enable2_pc": True})):
        answer = init(s, p.tx, **first)
        p.pid, p.epoch = answer["producer_id"], answer["producer_epoch"]
        p.sequences.clear()
        p.start(t)
        init(s, p.tx, **second)
        s.settle(p.tx)
        init(s, p.tx, **second)
        described = s.quiet("describe_transactions", 0, transactional_ids=[p.tx])["transaction_states"]
        s.put("timeout", described[0]["transaction_timeout"])
    s.fetch(t)


@story("two-phase-commit", "two-phase-commit")
def a_known_producer(s: Story) -> None:
    """A producer that sends its id and epoch gets the next epoch."""
    p = Producer(s, "tx")
    init(s, p.tx, 0, producer_id=p.pid, producer_epoch=p.epoch, enable2_pc=True)
    init(s, p.tx, 0, producer_id=p.pid, producer_epoch=p.epoch, enable2_pc=True)
    init(s, p.tx, producer_id=p.pid, producer_epoch=p.epoch + 7, enable2_pc=True)
