"""Feature levels that are changed while the cluster runs: UpdateFeatures."""

from __future__ import annotations

import time

from tests.differential.story import Story, story
from tests.support.deadlines import Deadline

UPGRADE, SAFE, UNSAFE = 1, 2, 3


def update(
    s: Story, v: int, name: str, level: int, kind: int = UPGRADE, *, note: str, dry: bool = False
) -> None:
    one: dict[str, object] = {"feature": name, "max_version_level": level}
    if v == 0:
        one["allow_downgrade"] = kind != UPGRADE
        s.ask("update_features", v, timeout=10_000, feature_updates=[one], note=note)
        return
    one["upgrade_type"] = kind
    s.ask("update_features", v, timeout=10_000, feature_updates=[one], validate_only=dry, note=note)


def level(s: Story, note: str, *, is_at: int = 2) -> None:
    """Record the level of transaction.version that ApiVersions returns.

    First wait until the level is ``is_at``, as Kafka's controller responds before its broker has read the record.
    """
    deadline = Deadline()
    while True:
        answer = s.quiet("api_versions", 4, client_software_name="a", client_software_version="1")
        rows = [row for row in answer["finalized_features"] if row["name"] == "transaction.version"]
        if [row["max_version_level"] for row in rows] == [is_at][:is_at] or deadline.is_over:
            break
        time.sleep(0.02)
    s.put(note, rows)


@story("update-features")
def transaction_version(s: Story) -> None:
    """UpdateFeatures downgrades and upgrades transaction.version, with the fields of each API version."""
    for v in range(3):
        update(s, v, "transaction.version", 1, note="a lower level is no upgrade")
        update(s, v, "transaction.version", 1, SAFE, note="down")
        level(s, f"after v{v} down", is_at=2 if v == 0 else 1)
        update(s, v, "transaction.version", 2, SAFE, note="a higher level is no downgrade")
        update(s, v, "transaction.version", 2, note="up")
        update(s, v, "transaction.version", 2, note="as it is")
        level(s, f"after v{v} up")


@story("update-features")
def asking_without_doing(s: Story) -> None:
    for v in (1, 2):
        update(s, v, "transaction.version", 1, SAFE, dry=True, note="down")
        update(s, v, "transaction.version", 9, dry=True, note="too high")
    level(s, "nothing was done")


@story("update-features")
def what_cannot_be(s: Story) -> None:
    for v in range(3):
        update(s, v, "transaction.version", 3, note="too high")
        update(s, v, "transaction.version", -1, note="below 0")
        update(s, v, "no.such.feature", 1, note="unknown")
        update(s, v, "no.such.feature", 0, note="unknown, at 0")
        update(s, v, "", 1, note="no name")
    for kind in (0, 4, -1):
        update(s, 2, "transaction.version", 1, kind, note=f"kind {kind}")
    s.ask("update_features", 2, timeout=10_000, feature_updates=[], validate_only=False, note="nothing asked")
    both = [
        {"feature": "transaction.version", "max_version_level": 1, "upgrade_type": SAFE},
        {"feature": "no.such.feature", "max_version_level": 1, "upgrade_type": UPGRADE},
    ]
    s.ask(
        "update_features",
        2,
        timeout=10_000,
        feature_updates=both,
        validate_only=False,
        note="all or nothing",
    )
    s.ask(
        "update_features",
        1,
        timeout=10_000,
        feature_updates=both,
        validate_only=False,
        note="all or nothing",
    )
    level(s, "nothing was done")


@story("update-features")
def to_level_0(s: Story) -> None:
    update(s, 2, "transaction.version", 0, SAFE, note="down to 0")
    level(s, "0 is the absence of a level", is_at=0)
    update(s, 2, "transaction.version", 2, note="up")
    level(s, "back")
