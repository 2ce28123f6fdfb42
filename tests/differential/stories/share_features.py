"""Levels of the feature share.version. Each story has a broker of its own."""

from __future__ import annotations

from tests.differential.stories.share_clients import (
    ACCEPT,
    GROUP_RESOURCE,
    REJECT,
    RELEASE,
    Member,
    alter_offsets,
    delete_groups,
    delete_offsets,
    describe,
    describe_offsets,
    filled,
    joined,
    key_of,
    state_log,
)
from tests.differential.stories.share_state import APIS, NAMES, ask
from tests.differential.story import Body, Story, Topic, story
from tests.support.deadlines import Deadline

PROFILE = "share-features"
SHARE_APIS = (76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92)
UPGRADE, SAFE_DOWNGRADE = 1, 2


def switch(s: Story, level: int, note: str) -> None:
    """Change share.version, and wait until the broker has the level."""
    kind = UPGRADE if level > level_of(s) else SAFE_DOWNGRADE
    row = {"feature": "share.version", "max_version_level": level, "upgrade_type": kind}
    s.ask("update_features", 2, note=note, timeout=10_000, validate_only=False, feature_updates=[row])
    deadline = Deadline()
    while level_of(s) != level:
        deadline.check(f"share.version is {level}")


def level_of(s: Story) -> int:
    rows = s.quiet("api_versions", 4, client_software_name="raw", client_software_version="1")[
        "finalized_features"
    ]
    return next((row["max_version_level"] for row in rows if row["name"] == "share.version"), 0)


def announced(s: Story, note: str) -> None:
    """The versions of the APIs, and the levels of the feature."""
    answer = s.quiet("api_versions", 4, client_software_name="raw", client_software_version="1")
    apis = [row for row in answer["api_keys"] if row["api_key"] in SHARE_APIS]
    found = {
        name: [row for row in answer[name] if row["name"] == "share.version"]
        for name in ("supported_features", "finalized_features")
    }
    s.put(f"announced, {note}", s.normal.answer("api_versions", {"api_keys": apis} | found))


def every_request(s: Story, note: str, m: Member, t: Topic) -> None:
    m.beat(note)
    Member(s, "new").join(f"joins, {note}", t)
    m.nothing(note, acks={t: [(0, 0, ACCEPT)]})
    m.nothing(f"opens a session, {note}", t, share_session_epoch=0)
    m.acknowledge(note, {t: [(1, 1, ACCEPT)]})
    describe(s, note)
    describe_offsets(s, note)
    alter_offsets(s, note, (t.name, 0, 1))
    delete_offsets(s, note, t.name)
    for what in NAMES:
        if what != "delete":
            ask(s, what, note, t)
        s.ask(APIS[what], 0, note=f"nothing, {note}", group_id=m.group, topics=[])
    answer = s.quiet("find_coordinator", 6, key_type=2, coordinator_keys=[key_of(m.group, t, 0)])
    s.put(f"find_coordinator v6, {note}", [row["error_code"] for row in answer["coordinators"]])
    s.ask("list_groups", 5, note=note)
    row = {"resource_type": GROUP_RESOURCE, "resource_name": m.group}
    s.ask(
        "describe_configs", 4, note=note, resources=[row | {"configuration_keys": ["share.isolation.level"]}]
    )


@story("share-features", PROFILE)
def switched_off(s: Story) -> None:
    t = filled(s, 4)
    m = joined(s, t)
    m.fetch("all", t)
    announced(s, "level 2")
    switch(s, 0, "off")
    announced(s, "level 0")
    every_request(s, "level 0", m, t)
    switch(s, 2, "on")
    announced(s, "level 2 again")
    m.beat("the old member")
    m.nothing("its session", share_session_epoch=1)
    m.session = 0
    m.until_acquired("a new session", t)
    m.leave()
    switch(s, 0, "off again")
    delete_groups(s, "level 0", "g")


@story("share-features", PROFILE)
def without_dead_letters(s: Story) -> None:
    """At level 1 there is no dead-letter queue."""
    t = filled(s, 4)
    queue = f"dlq.{s.name('q')}"
    s.quiet(
        "create_topics",
        7,
        retry=(),
        topics=[
            {
                "name": queue,
                "num_partitions": 1,
                "replication_factor": 1,
                "configs": [{"name": "errors.deadletterqueue.group.enable", "value": "true"}],
            }
        ],
    )
    s.wait_for(queue)
    switch(s, 1, "without dead letters")
    announced(s, "level 1")
    m = joined(s, t, errors__deadletterqueue__topic__name=queue)
    m.fetch("all", t)
    m.acknowledge("rejects one", {t: [(0, 0, REJECT)]})
    state_log(s, "level 1", "g", t)
    switch(s, 2, "with dead letters")
    m.beat("the member stays")
    m.acknowledge("rejects another", {t: [(1, 1, REJECT)]})
    deadline = Deadline()
    rows = [{"partition_index": 0, "timestamp": -1}]
    while True:
        body: Body = {"replica_id": -1, "topics": [{"name": queue, "partitions": rows}]}
        end = s.quiet("list_offsets", 5, **body)["topics"][0]["partitions"][0]["offset"]
        if end:
            break
        deadline.check("a dead letter is written")
    s.put("dead letters", end)


@story("share-features", PROFILE)
def restarted(s: Story) -> None:
    """A clean shutdown ends the sessions, which releases their records. Members keep their epochs."""
    t = filled(s, 6)
    m = joined(s, t)
    m.fetch("all", t)
    m.acknowledge("accepts and releases some", {t: [(0, 1, ACCEPT), (2, 2, RELEASE)]})
    describe(s, "before")
    s.restart()
    m.session = 0
    m.until_acquired("after", t)
    m.beat("after")
    describe(s, "after")
    describe_offsets(s, "after")
    state_log(s, "after", "g", t)
