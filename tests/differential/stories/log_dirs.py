"""DescribeLogDirs: partitions and their sizes."""

from __future__ import annotations

from tests.differential.stories.alter_configs import BROKER, DELETE, SET, change, settled, told
from tests.differential.story import Story, Topic, story

CORDONED = "cordoned.log.dirs"
INVALID_REPLICATION_FACTOR = 38


def of(t: Topic | str, *partitions: int) -> dict[str, object]:
    return {"topic": t if isinstance(t, str) else t.name, "partitions": list(partitions)}


@story("describe-log-dirs")
def sizes(s: Story) -> None:
    """DescribeLogDirs returns the bytes of the batches as the size. Unknown partitions are not in the list."""
    t, u = s.topic(2), s.topic()
    for count in (1, 3):
        s.produce(t, s.batch(count))
    for v in range(1, 6):
        s.ask("describe_log_dirs", v, topics=[of(t, 0, 1), of(u, 0)], note="two topics")
        s.ask("describe_log_dirs", v, topics=[of(t, 0, 0, 7, -1), of(s.name("missing"), 0)], note="missing")
        s.ask("describe_log_dirs", v, topics=[of(t)], note="no partitions")
        s.ask("describe_log_dirs", v, topics=[], note="no topics")
    answer = s.quiet("describe_log_dirs", 4, topics=None)
    own = [row for row in answer["results"][0]["topics"] if row["name"].startswith(s.prefix)]
    found = {
        f"{row['name'].replace(s.prefix, '~')}-{each['partition_index']}": each["partition_size"]
        for row in own
        for each in row["partitions"]
    }
    s.put("all", dict(sorted(found.items())))


@story("describe-log-dirs")
def moves(s: Story) -> None:
    """AlterReplicaLogDirs on a node with one directory: to the replica's own directory, and to an unknown one."""
    t = s.topic()
    here = s.quiet("describe_log_dirs", 4, topics=[of(t, 0)])["results"][0]["log_dir"]
    for v in (1, 2):
        for note, path in (("here", here), ("elsewhere", "/elsewhere"), ("relative", "elsewhere")):
            names = (t.name, s.name("missing"), "x" * 249)
            topics = [{"name": name, "partitions": [0, 7]} for name in names]
            s.ask("alter_replica_log_dirs", v, dirs=[{"path": path, "topics": topics}], note=note)
        s.ask("alter_replica_log_dirs", v, dirs=[], note="none")


@story("describe-log-dirs", "unused")
def cordoned(s: Story) -> None:
    """A broker whose log directory is cordoned gets no new partitions (KIP-1066). Its replicas stay, and can be written."""
    t = s.topic()
    here = s.quiet("describe_log_dirs", 5, topics=[of(t, 0)])["results"][0]["log_dir"]
    for note, name, value in (
        ("an unknown directory", "1", "/elsewhere"),
        ("all and one", "1", f"*,{here}"),
        ("of all brokers", "", "*"),
        ("no directory", "1", ""),
    ):
        change(s, note, BROKER, name, (CORDONED, SET, value))
    change(s, "of all brokers, unset", BROKER, "", (CORDONED, DELETE, None))
    for value in ("*", here):
        note = "all" if value == "*" else "the directory"
        change(s, note, BROKER, "1", (CORDONED, SET, value))
        settled(s, BROKER, "1", CORDONED, value)
        if value == "*":
            told(s, note, BROKER, "1", CORDONED)
        for v in (4, 5):
            s.ask("describe_log_dirs", v, topics=[of(t, 0)], note=note)
        _await_cordoned(s, True)
        _place(s, t, note)
        s.produce(t, s.batch(1))
        for v in (1, 2):
            topics = [{"name": t.name, "partitions": [0]}]
            s.ask("alter_replica_log_dirs", v, dirs=[{"path": here, "topics": topics}], note=note)
        change(s, f"{note}, unset", BROKER, "1", (CORDONED, DELETE, None))
        settled(s, BROKER, "1", CORDONED, "")
        _await_cordoned(s, False)
    told(s, "unset", BROKER, "1", CORDONED)
    s.ask("describe_log_dirs", 5, topics=[of(t, 0)], note="unset")
    _place(s, t, "unset")


def _await_cordoned(s: Story, cordoned: bool) -> None:
    """Wait for the broker's next heartbeat, by which Kafka's controller learns what is cordoned."""
    row = {"name": s.name("placed"), "num_partitions": 1, "replication_factor": 1}
    wanted = INVALID_REPLICATION_FACTOR if cordoned else 0
    while (
        s.quiet("create_topics", 7, retry=(), topics=[row], validate_only=True)["topics"][0]["error_code"]
        != wanted
    ):
        pass


def _place(s: Story, t: Topic, note: str) -> None:
    """Ask for replicas on the broker: new topics, a new partition, and a reassignment to the broker that has the replica."""
    by_hand = {
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": 0, "broker_ids": [1]}],
    }
    for how, more in (("placed", {"num_partitions": 1, "replication_factor": 1}), ("by hand", by_hand)):
        row = {"name": s.name("placed")} | more
        s.ask("create_topics", 7, topics=[row], timeout=10_000, validate_only=True, note=f"{note}: {how}")
    for how, assigned in (("placed", None), ("by hand", [{"broker_ids": [1]}])):
        rows = [{"name": t.name, "count": 2, "assignments": assigned}]
        s.ask("create_partitions", 3, topics=rows, timeout=10_000, validate_only=True, note=f"{note}: {how}")
    rows = [{"name": t.name, "partitions": [{"partition_index": 0, "replicas": [1]}]}]
    s.ask("alter_partition_reassignments", 1, topics=rows, timeout=10_000, note=note)
