"""A program that makes the pictures of the views of the broker's web page, with a cluster that has load and faults.

Run ``python -m tests.docs.views``.

The pictures are in docs/pictures, each in the light and in the dark scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from PIL import Image
from playwright.sync_api import Page

import odradek
from tests.docs.browser import view
from tests.support.chromium import chromium
from tests.support.deadlines import HANG_S

PICTURES: Final = Path(__file__).resolve().parents[2] / "docs" / "pictures"
SCHEMES: Final = ("light", "dark")
COLOURS: Final = 256


def producer_of(broker: odradek.Broker, name: str, **more: Any) -> Producer:
    here = {"bootstrap.servers": broker.bootstrap_servers, "client.id": name, "linger.ms": 0, "log_level": 0}
    return Producer({**here, **more})


def transactional(broker: odradek.Broker, transactional_id: str) -> Producer:
    producer = producer_of(broker, transactional_id, **{"transactional.id": transactional_id})
    producer.init_transactions(HANG_S)
    return producer


def write(producer: Producer, topic: str, *values: str, partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(HANG_S) == 0


def commit_all(billing: Producer) -> None:
    """Run four transactions of one producer; the third one is aborted."""
    for number, size in enumerate((3, 2, 4, 2)):
        billing.begin_transaction()
        write(billing, "orders", *["paid"] * size)
        write(billing, "orders", *["paid"] * size, partition=1)
        billing.abort_transaction(HANG_S) if number == 2 else billing.commit_transaction(HANG_S)


def member(broker: odradek.Broker, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": f"{group}-worker-1",
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )


@contextmanager
def staged() -> Iterator[odradek.Broker]:
    """A cluster of three nodes with ended, open and held transactions, a group that lags, and a link that is cut."""
    with odradek.Broker(nodes=3, topics={"orders": 2, "invoices": 1}, port=9092) as broker, broker.trace:
        write(producer_of(broker, "shop"), "orders", *['{"order": 7, "state": "new"}'] * 3)
        write(producer_of(broker, "shop"), "orders", "new", "new", partition=1)
        commit_all(transactional(broker, "billing"))

        shipping = member(broker, "shipping")
        shipping.subscribe(["orders"])
        for message in shipping.consume(8, HANG_S):
            shipping.commit(message=message, asynchronous=False)

        invoicing = transactional(broker, "invoicing")
        offsets = [TopicPartition("orders", 0, 5)]
        for open_ in (False, True):
            invoicing.begin_transaction()
            write(invoicing, "invoices", "no. 1", "no. 2")
            group = member(broker, "invoicing")
            invoicing.send_offsets_to_transaction(offsets, group.consumer_group_metadata(), HANG_S)
            group.close()
            if not open_:
                invoicing.commit_transaction(HANG_S)

        forgetful = transactional(broker, "forgetful")
        forgetful.begin_transaction()
        write(forgetful, "orders", "never ended")
        write(producer_of(broker, "shop"), "orders", *["new"] * 4)

        with broker.faults.add("EndTxn transactional_id=refunds nth=1 -> lose-answer") as lost:
            refunds = transactional(broker, "refunds")
            refunds.begin_transaction()
            write(refunds, "invoices", "no. 3")
            refunds.commit_transaction(HANG_S)
            lost.wait()
            held = broker.faults.add("txn.marker transactional_id=refunds topic=orders -> hold")
            refunds.begin_transaction()
            write(refunds, "orders", "paid back", partition=1)
            refunds.commit_transaction(HANG_S)
            held.wait()
            broker.faults.add("Fetch client_id=shipping p=0.1 seed=7 -> delay 200ms")
            broker.faults.add("cut 2 3")
            yield broker
            broker.faults.clear()
        shipping.close()


def of_transactions(page: Page) -> None:
    page.get_by_role("rowheader", name="forgetful").wait_for()


def of_partitions(page: Page) -> None:
    page.locator("rect.open").first.hover()
    page.locator(".detail", has_text="its transaction has not ended").first.wait_for()


def of_messages(page: Page) -> None:
    page.get_by_role("rowheader", name="18").wait_for()
    page.get_by_label("Values as").select_option("JSON")
    page.get_by_text("Write a record").click()


def of_groups(page: Page) -> None:
    page.get_by_role("rowheader", name="worker-1").wait_for()


def of_timeline(page: Page) -> None:
    page.set_viewport_size({"width": page.evaluate("innerWidth"), "height": 900})
    page.get_by_label("Which transactions").select_option("transaction 1: committed")
    step = page.get_by_role("button", name="step", exact=True)
    for _ in range(6):
        step.click()


def of_trace(page: Page) -> None:
    page.get_by_role("listitem").filter(has_text="InitProducerId").first.wait_for()
    page.get_by_label("API").fill("EndTxn")
    page.get_by_role("button", name="filter").click()
    page.get_by_role("listitem").filter(has_text="InitProducerId").first.wait_for(state="detached")
    lost = page.get_by_role("listitem").filter(has_text="ANSWER LOST")
    lost.locator("summary").click()
    lost.get_by_text('"answer_lost"').wait_for()


def of_rules(page: Page) -> None:
    page.get_by_role("rowheader", name="cut 2 3").wait_for()


def of_cluster(page: Page) -> None:
    page.get_by_role("rowheader", name="cut 2 3").wait_for()
    page.get_by_text("paused").wait_for()


VIEWS: Final[dict[str, tuple[str, Callable[[Page], None]]]] = {
    "transactions": ("transactions", of_transactions),
    "partitions": ("partitions/orders", of_partitions),
    "messages": ("messages/orders", of_messages),
    "groups": ("groups/shipping", of_groups),
    "timeline": ("timeline/refunds", of_timeline),
    "trace": ("trace", of_trace),
    "rules": ("rules", of_rules),
    "nodes-and-clock": ("cluster", of_cluster),
}


def picture(name: str, scheme: str) -> Path:
    return PICTURES / f"page-{name}-{scheme}.png"


def save(png: bytes, to: Path) -> None:
    """Save the picture with a palette of its most frequent colours, which makes the file a third as large."""
    with Image.open(BytesIO(png)) as opened:
        image = opened.convert("RGB")
    counted = sorted(image.getcolors(image.width * image.height) or (), reverse=True)
    palette = Image.new("P", (1, 1))
    colours: list[Any] = [colour for _, colour in counted[:COLOURS]]
    palette.putpalette([part for colour in colours for part in colour])
    image.quantize(palette=palette, dither=Image.Dither.NONE).save(to, optimize=True)


def main() -> None:
    with staged() as broker, chromium() as browser:
        for name, (path, ready) in VIEWS.items():
            if (
                name == "nodes-and-clock"
            ):  # The last view: a paused node hides the transactions and groups that it coordinates.
                broker.nodes[3].pause()
            for scheme in SCHEMES:
                with view(browser, broker.control_url, path, scheme) as page:
                    ready(page)
                    save(page.screenshot(full_page=True), picture(name, scheme))


if __name__ == "__main__":
    main()
