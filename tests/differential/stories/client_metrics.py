"""GetTelemetrySubscriptions and PushTelemetry (KIP-714), with and without a broker that exports metrics."""

from __future__ import annotations

import gzip
import uuid
from base64 import urlsafe_b64encode
from typing import Any

from tests.differential.stories.alter_configs import DELETE, METRICS, SET, change, settled
from tests.differential.story import Body, Story, story

API_KEYS = {71: "get", 72: "push"}
NO_ID = uuid.UUID(int=0)
# `MetricsData` of OTLP with one resource, scope and gauge: {resource_metrics {scope_metrics {metrics {name: "m"}}}}.
METRICS_DATA = bytes.fromhex("0a07120512030a016d")


def client(s: Story, number: int) -> uuid.UUID:
    """A fixed client instance id of this story."""
    return uuid.uuid5(uuid.NAMESPACE_OID, f"{s.entry.id} {number}")


def get(s: Story, note: str, instance: uuid.UUID = NO_ID, **more: Any) -> Body:
    return s.ask("get_telemetry_subscriptions", 0, client_instance_id=instance, note=note, **more)


def push(s: Story, note: str, instance: uuid.UUID, subscription: int, **more: Any) -> Body:
    body = {"terminating": False, "compression_type": 0, "metrics": METRICS_DATA, **more}
    return s.ask(
        "push_telemetry", 0, client_instance_id=instance, subscription_id=subscription, note=note, **body
    )


def subscribe(s: Story, name: str, **configs: str) -> None:
    entries = [(key.replace("_", "."), SET, value) for key, value in configs.items()]
    change(s, f"subscription {name}", METRICS, f"{s.prefix}-{name}", *entries)
    for key, value in configs.items():
        settled(s, METRICS, f"{s.prefix}-{name}", key.replace("_", "."), value)


def unsubscribe(s: Story, name: str, *keys: str) -> None:
    """Remove a subscription: other stories use the same broker."""
    change(
        s, f"no subscription {name}", METRICS, f"{s.prefix}-{name}", *[(key, DELETE, None) for key in keys]
    )


def announced(s: Story) -> None:
    answer = s.quiet("api_versions", 4, client_software_name="story", client_software_version="1.5")
    keys = {each["api_key"] for each in answer["api_keys"]}
    s.put("announced", sorted(name for key, name in API_KEYS.items() if key in keys))


@story("client-metrics")
def without_an_exporter(s: Story) -> None:
    """A broker that exports no metrics does not announce the APIs, but serves them."""
    announced(s)
    one = client(s, 1)
    get(s, "an id of its own", one)
    get(s, "too early", one)
    answer = s.quiet("get_telemetry_subscriptions", 0, client_instance_id=NO_ID, on="second")
    s.put("an id is given", (answer["error_code"], answer["client_instance_id"] not in (None, NO_ID)))
    push(s, "not subscribed to", client(s, 2), 7)


@story("client-metrics", profile="client-metrics")
def a_client_pushes(s: Story) -> None:
    announced(s)
    one = client(s, 1)
    subscription = get(s, "nothing is wanted", one)["subscription_id"]
    push(s, "right behind it", one, subscription)
    push(s, "too early", one, subscription)
    get(s, "too early", one)
    push(s, "the last one", one, subscription, terminating=True)
    push(s, "behind the last one", one, subscription, terminating=True)


@story("client-metrics", profile="client-metrics")
def what_is_refused(s: Story) -> None:
    refused: tuple[tuple[str, dict[str, Any]], ...] = (
        ("a compression that is not known", {"compression_type": 9}),
        ("too large", {"metrics": bytes(2 * 1024 * 1024)}),
        ("not compressed as it says", {"compression_type": 1}),
        (
            "too large when decompressed",
            {"compression_type": 1, "metrics": gzip.compress(bytes(1 << 21))},
        ),
        ("compressed", {"compression_type": 1, "metrics": gzip.compress(METRICS_DATA)}),
        ("nothing", {"metrics": b""}),
    )
    for number, (note, more) in enumerate(refused):
        one = client(s, number)
        subscription = get(s, f"for {note}", one)["subscription_id"]
        push(s, note, one, subscription, **more)
        get(s, f"after {note}", one)
    one = client(s, 9)
    subscription = get(s, "for a wrong subscription", one)["subscription_id"]
    push(s, "a wrong subscription", one, subscription ^ 1)
    get(s, "asks anew", one)
    push(s, "with the right one", one, subscription)
    for instance in (NO_ID, uuid.UUID(int=1)):
        push(s, f"id {instance.int}", instance, 0)


@story("client-metrics", profile="client-metrics")
def subscriptions(s: Story) -> None:
    """Matching subscriptions are combined, and a change is visible at once."""
    s.quiet("api_versions", 3, client_software_name="story", client_software_version="1.5")
    one = client(s, 1)
    subscribe(s, "a", metrics="org.apache.kafka.producer.", interval_ms="5000", match="client_id=story.*")
    get(s, "another client id", one, client_id="other")
    two = client(s, 2)
    get(s, "one that matches", two, client_id="story-2")
    subscribe(
        s,
        "b",
        metrics="*",
        interval_ms="900000",
        match="client_software_name=story,client_software_version=1[.]5",
    )
    get(s, "all of it", two, client_id="story-2")
    three = client(s, 3)
    get(s, "of another software", three, on="second", client_id="story-3")
    subscribe(
        s, "c", metrics="org.apache.kafka.consumer.", match="client_source_address=127.0.0.1,client_id=only"
    )
    get(s, "by address", client(s, 4), on="second", client_id="only")
    subscribe(s, "d", interval_ms="100", match=f"client_instance_id={_text(client(s, 5))}")
    get(s, "by its id", client(s, 5), on="second", client_id="nobody")
    unsubscribe(s, "b", "metrics", "interval.ms", "match")
    settled(s, METRICS, f"{s.prefix}-b", "interval.ms", "300000")
    get(s, "one less", two, client_id="story-2")
    for name in "acd":
        unsubscribe(s, name, "metrics", "interval.ms", "match")


def _text(number: uuid.UUID) -> str:
    """An id as Kafka's ``Uuid.toString`` writes it."""
    return urlsafe_b64encode(number.bytes).decode().rstrip("=")
