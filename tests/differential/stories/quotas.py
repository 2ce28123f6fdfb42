"""Client quotas: which can be set, and how they are described. Their effect is in tests/broker/quotas."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from tests.differential.story import FETCH, Body, Story, fetch_body, produce_body, story

USER, CLIENT, IP = "user", "client-id", "ip"
EXACT, DEFAULT, ANY = 0, 1, 2
RATES = count(1)


def entity(**names: str | None) -> list[Body]:
    return [{"entity_type": name.replace("_", "-"), "entity_name": value} for name, value in names.items()]


def set_(key: str, value: float) -> Body:
    return {"key": key, "value": value, "remove": False}


def unset(key: str) -> Body:
    return {"key": key, "value": 0.0, "remove": True}


def alter(
    s: Story, note: str, *entries: tuple[list[Body], Sequence[Body]], v: int = 1, dry: bool = False
) -> None:
    rows = [{"entity": who, "ops": list(ops)} for who, ops in entries]
    s.ask("alter_client_quotas", v, entries=rows, validate_only=dry, note=note)


def caught_up(s: Story) -> None:
    """Wait until the broker has read all changes, as Kafka's controller responds before that.

    The function sets a quota: records are read in order, so earlier changes are visible when this quota is.
    """
    rate = set_("connection_creation_rate", float(next(RATES)))
    who = entity(ip="127.0.0.8")
    s.quiet("alter_client_quotas", 1, entries=[{"entity": who, "ops": [rate]}], validate_only=False)
    rows: list[Any] = [{"entity_type": IP, "match_type": EXACT, "match": "127.0.0.8"}]
    for _ in range(1_000):
        found = s.quiet("describe_client_quotas", 1, components=rows, strict=True)["entries"]
        if found and found[0]["values"][0]["value"] == rate["value"]:
            return
    raise AssertionError("DescribeClientQuotas does not return the quota that was set")


def describe(
    s: Story, note: str, *components: tuple[str, int, str | None], strict: bool = False, v: int = 1
) -> None:
    caught_up(s)
    rows = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    answer = s.quiet("describe_client_quotas", v, retry=(), components=rows, strict=strict)
    if answer["entries"] is not None:
        mine = [
            e
            for e in answer["entries"]
            if any((p["entity_name"] or "").startswith(s.prefix) for p in e["entity"])
        ]
        for each in mine:
            each["entity"].sort(key=lambda part: part["entity_type"])
            each["values"].sort(key=lambda value: value["key"])
        answer["entries"] = sorted(
            mine, key=lambda e: str([(p["entity_type"], p["entity_name"]) for p in e["entity"]])
        )
    s.put(f"describe_client_quotas v{v} ({note})", s.normal.value(answer, "", False))


@story("quotas")
def set_and_found(s: Story) -> None:
    a, b = s.name("a"), s.name("b")
    for v in (0, 1):
        alter(s, "a user", (entity(user=a), [set_("producer_byte_rate", 1000.0)]), v=v)
        describe(s, "a user", (USER, EXACT, a), v=v)
    alter(
        s,
        "more of it",
        (entity(user=a), [set_("consumer_byte_rate", 2.0), set_("request_percentage", 200.0)]),
    )
    alter(s, "with a client id", (entity(user=a, client_id=b), [set_("controller_mutation_rate", 3.0)]))
    alter(s, "a client id", (entity(client_id=b), [set_("producer_byte_rate", 7.0)]))
    alter(s, "all client ids of a user", (entity(user=a, client_id=None), [set_("producer_byte_rate", 8.0)]))
    alter(s, "dry", (entity(user=b), [set_("producer_byte_rate", 9.0)]), dry=True)
    for strict in (False, True):
        note = "strict" if strict else "not strict"
        describe(s, f"the user, {note}", (USER, EXACT, a), strict=strict)
        describe(s, f"any user, {note}", (USER, ANY, None), strict=strict)
        describe(s, f"any client id, {note}", (CLIENT, ANY, None), strict=strict)
        describe(s, f"both, {note}", (USER, EXACT, a), (CLIENT, ANY, None), strict=strict)
        describe(
            s, f"the default client id, {note}", (USER, EXACT, a), (CLIENT, DEFAULT, None), strict=strict
        )
        describe(s, f"nothing, {note}", strict=strict)
    alter(s, "one goes", (entity(user=a), [unset("producer_byte_rate"), unset("request_percentage")]))
    alter(s, "one that is not there goes", (entity(user=a), [unset("producer_byte_rate")]))
    describe(s, "what is left of the user", (USER, EXACT, a), strict=True)
    alter(s, "the last goes", (entity(user=a), [unset("consumer_byte_rate")]))
    describe(s, "the user", (USER, EXACT, a), strict=True)


@story("quotas")
def bad_changes(s: Story) -> None:
    a = s.name("a")
    good = [set_("producer_byte_rate", 1.0)]
    for note, who, ops in (
        ("no entity", [], good),
        ("unknown entity", [{"entity_type": "group", "entity_name": a}], good),
        ("empty name", entity(user=""), good),
        ("ip and user", entity(user=a, ip="127.0.0.1"), [set_("connection_creation_rate", 1.0)]),
        ("no address", entity(ip="not an address"), [set_("connection_creation_rate", 1.0)]),
        ("unknown key", entity(user=a), [set_("produce", 1.0)]),
        ("key of another entity", entity(user=a), [set_("connection_creation_rate", 1.0)]),
        ("zero", entity(user=a), [set_("producer_byte_rate", 0.0)]),
        ("negative", entity(user=a), [set_("producer_byte_rate", -1.0)]),
        ("fraction", entity(user=a), [set_("producer_byte_rate", 1.5)]),
        ("too large", entity(user=a), [set_("producer_byte_rate", 1e30)]),
        ("fraction of a percentage", entity(user=a), [set_("request_percentage", 0.5)]),
        ("fraction of a rate", entity(user=a), [set_("controller_mutation_rate", 0.5)]),
        ("same key twice", entity(user=a), [*good, set_("producer_byte_rate", 2.0)]),
        ("same type twice", [*entity(user=a), *entity(user=s.name("b"))], good),
        ("no operations", entity(user=a), []),
    ):
        alter(s, note, (who, ops))
    alter(s, "same entity twice", (entity(user=a), good), (entity(user=a), [set_("consumer_byte_rate", 1.0)]))
    alter(s, "none")
    describe(s, "what came of it", (USER, ANY, None))


@story("quotas")
def bad_filters(s: Story) -> None:
    for note, components in (
        ("empty type", [("", EXACT, "a")]),
        ("unknown type", [("group", EXACT, "a")]),
        ("twice", [(USER, EXACT, "a"), (USER, ANY, None)]),
        ("exact without name", [(USER, EXACT, None)]),
        ("default with name", [(USER, DEFAULT, "a")]),
        ("any with name", [(USER, ANY, "a")]),
        ("unknown match", [(USER, 9, None)]),
        ("ip and user", [(IP, EXACT, "127.0.0.1"), (USER, ANY, None)]),
    ):
        describe(s, note, *components)


@story("quotas")
def addresses(s: Story) -> None:
    """Connection quotas are stored by address, and found by their type."""
    alter(s, "an address", (entity(ip="127.0.0.9"), [set_("connection_creation_rate", 5.0)]))
    alter(s, "a rate of requests", (entity(ip="127.0.0.9"), [set_("request_percentage", 5.0)]))
    rows: list[Any] = [{"entity_type": IP, "match_type": EXACT, "match": "127.0.0.9"}]
    caught_up(s)
    s.ask("describe_client_quotas", 1, components=rows, strict=True)
    alter(s, "gone", (entity(ip="127.0.0.9"), [unset("connection_creation_rate")]))
    caught_up(s)
    s.ask("describe_client_quotas", 1, components=rows, strict=True, note="gone")


def throttled(s: Story, note: str, api: str, v: int, **body: Any) -> Body:
    """Send a request and record whether its response has a throttle time above 0, not the time, which varies."""
    answer = s.quiet(api, v, retry=(), **body)
    waits = answer["throttle_time"] > 0
    s.put(
        f"{api} v{v} ({note})",
        {"waits": waits, "answer": s.normal.answer(api, answer | {"throttle_time": 0})},
    )
    return answer


def limited(s: Story, client_id: str, key: str) -> None:
    """Limit a client to ten thousand bytes a second, which is a hundred thousand in each window of ten seconds."""
    alter(s, "ten thousand bytes a second", (entity(client_id=client_id), [set_(key, 10_000.0)]))
    caught_up(s)


@story("quotas")
def a_consumer_waits_without_its_data(s: Story) -> None:
    """A Fetch above the rate gets no records, does not count for the quota, and does not advance the fetch session."""
    t, slow = s.topic(), s.name("slow")
    batch = s.batch([bytes(1_900)])
    for _ in range(60):
        s.quiet("produce", 9, **produce_body([(t, 0, batch)], 9, -1, None), timeout=10_000)
    asked = FETCH | fetch_body([(t, 0, 0)], 12)
    begun = asked | {"session_epoch": 0, "max_bytes": 0, "client_id": slow}
    session = throttled(s, "no quota yet", "fetch", 12, **begun)["session_id"]
    limited(s, slow, "consumer_byte_rate")
    for epoch, (note, max_bytes) in enumerate(
        (("most of a window", 97_000), ("over the rate", 4_000), ("behind the wait", 2_000)), start=1
    ):
        more = {"session_id": session, "session_epoch": epoch, "max_bytes": max_bytes, "topics": []}
        throttled(s, note, "fetch", 12, **asked | more, client_id=slow)
    throttled(s, "another client", "fetch", 12, **asked | {"max_bytes": 4_000})
    alter(s, "no quota", (entity(client_id=slow), [unset("consumer_byte_rate")]))


@story("quotas")
def a_producer_waits_with_its_answer(s: Story) -> None:
    """A Produce above the rate is written, and its bytes count for the quota. The response has a throttle time."""
    t, slow = s.topic(), s.name("slow")
    limited(s, slow, "producer_byte_rate")
    for note, size, client_id in (
        ("most of a window", 97_000, slow),
        ("over the rate", 4_000, slow),
        ("another client", 4_000, "raw"),
    ):
        body = produce_body([(t, 0, s.batch([bytes(size)]))], 9, -1, None)
        throttled(s, note, "produce", 9, **body, timeout=10_000, client_id=client_id)
    alter(s, "no quota", (entity(client_id=slow), [unset("producer_byte_rate")]))
