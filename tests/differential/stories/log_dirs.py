"""DescribeLogDirs: partitions and their sizes."""

from __future__ import annotations

from tests.differential.story import Story, Topic, story


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
