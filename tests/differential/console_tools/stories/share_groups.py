"""kafka-share-groups and the other tools for share groups, their settings and their records."""

from __future__ import annotations

from tests.differential.console_tools.normal import Shown
from tests.differential.console_tools.stories.clients import ALL_SHOWN, DUMPED, FORMATTERS, IDLE_MS
from tests.differential.console_tools.stories.configs import alter
from tests.differential.console_tools.stories.groups import SETS, SORTED
from tests.differential.console_tools.story import ToolStory, story
from tests.differential.stories.share_clients import ACCEPT, REJECT, RELEASE, filled, joined

PROFILE = "share"
DESCRIBED = (
    "",
    "--offsets",
    "--members",
    "--state",
    "--verbose",
    "--offsets --verbose",
    "--members --verbose",
)


def described(s: ToolStory, group: str) -> None:
    for what in DESCRIBED:
        s.run("--describe --group", group, *what.split(), show=SORTED)


@story("kafka-share-groups", PROFILE)
def share_groups_listed(s: ToolStory) -> None:
    orders = s.topic()
    joined(s, orders, group="sharers")
    joined(s, orders, group="idle", member_id="n").leave(quiet=True)
    own = Shown(only=f"{s.prefix}|GROUP", sorted=True)
    s.run("--list", show=own)
    for state in ("", "Stable", "empty", "Stable,Empty", "Dead"):
        s.run("--list --state", *state.split(), show=own)
    s.run("--list --state nonsense", show=SETS)
    for filter in ("--share", "--group-type share", "--protocol share", "--consumer"):
        s.run("--list", *filter.split(), tool="kafka-groups", show=own)
    s.run("--list --type share", tool="kafka-consumer-groups", show=own)


@story("kafka-share-groups", PROFILE)
def share_group_with_a_member(s: ToolStory) -> None:
    orders = filled(s, 5, topic=s.topic(2))
    m = joined(s, orders, group="sharers", partitions=2)
    described(s, m.group)
    m.fetch("all", orders, quiet=True)
    m.acknowledge("some", {orders: [(0, 1, ACCEPT), (3, 3, REJECT)]}, quiet=True)
    described(s, m.group)
    s.run(f"--delete --group {m.group}")
    s.run(f"--delete-offsets --group {m.group} --topic {orders.name}")
    s.run(f"--reset-offsets --group {m.group} --topic {orders.name} --to-earliest --execute")
    s.run(f"--reset-offsets --group {m.group} --topic {orders.name} --to-earliest --dry-run", show=SORTED)
    s.run(f"--describe --group {m.group}", tool="kafka-consumer-groups")


@story("kafka-share-groups", PROFILE)
def share_group_without_members(s: ToolStory) -> None:
    orders = filled(s, 5, topic=s.topic(2))
    audit = s.topic()
    m = joined(s, orders, group="sharers", partitions=2)
    joined(s, orders, audit, group="auditors", member_id="n").leave(quiet=True)
    m.leave(quiet=True)
    group = ("--group", m.group)
    described(s, m.group)
    reset = ("--reset-offsets", *group)
    for scenario in ("--to-earliest", "--to-latest", "--to-datetime 2020-01-01T00:00:00.000"):
        s.run(*reset, f"--topic {orders.name}", *scenario.split(), "--dry-run", show=SORTED)
    s.run(*reset, f"--topic {orders.name} --to-datetime 2099-01-01T00:00:00.000 --dry-run", show=SORTED)
    s.run(*reset, f"--topic {orders.name}:0 --to-latest --execute", show=SORTED)
    s.run("--describe", *group, show=SORTED)
    s.run(*reset, "--all-topics --to-earliest --execute", show=SORTED)
    s.run(*reset, f"--topic {orders.name} --to-earliest", show=SORTED)
    s.run(*reset, f"--topic {audit.name} --to-earliest --execute", show=SORTED)
    s.run(*reset, "--all-topics --to-earliest --dry-run", show=SORTED)
    s.run("--delete-offsets", *group, f"--topic {orders.name}")
    s.run("--delete-offsets", *group, f"--topic {orders.name} --topic {audit.name}", show=SORTED)
    s.run("--describe", *group, show=SORTED)
    s.run("--delete", *group)
    s.run("--delete", *group, f"--group {s.name('auditors')}", show=SORTED)
    s.run("--list", show=Shown(only=s.prefix))


@story("kafka-share-groups", PROFILE)
def share_groups_that_are_not_there(s: ToolStory) -> None:
    orders = s.topic()
    joined(s, orders, group="sharers").leave(quiet=True)
    absent, group = ("--group", s.name("absent")), ("--group", s.name("sharers"))
    described(s, absent[1])
    s.run("--delete", *absent)
    s.run("--delete-offsets", *absent, f"--topic {orders.name}")
    s.run("--delete-offsets", *group, f"--topic {s.name('nowhere')}")
    reset = ("--reset-offsets", *group)
    s.run(*reset, f"--topic {s.name('nowhere')} --to-earliest --execute")
    s.run(*reset, f"--topic {orders.name}:7 --to-earliest --execute")
    s.run(*reset, f"--topic {orders.name} --to-datetime yesterday --execute")
    s.run(*reset, f"--topic {orders.name} --to-earliest --to-latest --execute")
    s.run(*reset, f"--topic {orders.name} --execute")
    s.run("--reset-offsets", *absent, f"--topic {orders.name} --to-earliest --execute", show=SORTED)
    s.run("--describe", *absent, show=SORTED)
    s.commit(s.name("readers"), orders.name, 0)
    readers = ("--group", s.name("readers"))
    s.run("--describe", *readers)
    s.run("--delete", *readers)
    s.run("--delete-offsets", *readers, f"--topic {orders.name}")
    s.run("--reset-offsets", *readers, f"--topic {orders.name} --to-earliest --execute")
    s.run("--describe --all-groups", show=Shown(only=s.prefix, sorted=True))
    s.run("--list --describe")


@story("kafka-configs", PROFILE)
def share_settings(s: ToolStory) -> None:
    group = ("--entity-type", "groups", "--entity-name", s.name("sharers"))
    s.run("--describe", *group)
    alter(s, group, "share.session.timeout.ms=50000,share.heartbeat.interval.ms=6000")
    alter(s, group, "share.auto.offset.reset=by_duration:PT1H,share.isolation.level=read_committed")
    alter(s, group, "share.delivery.count.limit=3,share.record.lock.duration.ms=20000")
    alter(s, group, "share.partition.max.record.locks=200,share.renew.acknowledge.enable=false")
    alter(s, group, "errors.deadletterqueue.topic.name=dlq.q,errors.deadletterqueue.copy.record.enable=true")
    s.run("--describe", *group, show=SORTED, until="dlq.q")
    s.run("--describe --all", *group, show=SORTED)
    for add in (
        "share.session.timeout.ms=1",
        "share.session.timeout.ms=x",
        "share.delivery.count.limit=1",
        "share.delivery.count.limit=11",
        "share.auto.offset.reset=none",
        "share.isolation.level=none",
        "share.heartbeat.interval.ms=15000,share.session.timeout.ms=15000",
        "errors.deadletterqueue.topic.name=__dead",
        "share.no.such.config=1",
    ):
        alter(s, group, add)
    alter(s, group, delete="share.isolation.level,share.auto.offset.reset,errors.deadletterqueue.topic.name")
    s.run("--describe", *group, show=SORTED, until_gone="dlq.q")


@story("kafka-dump-log", PROFILE)
def share_topics(s: ToolStory) -> None:
    """Records of __share_group_state and of share groups in __consumer_offsets. Both have one partition."""
    orders = filled(s, 10)
    m = joined(s, orders, group="sharers")
    m.fetch("all", orders, quiet=True)
    for row in ((0, 1, ACCEPT), (5, 5, RELEASE), (6, 6, REJECT)):
        m.acknowledge("one", {orders: [row]}, quiet=True)
    own = Shown(
        hidden=(*DUMPED.hidden, r"^\| offset: (\d+)", r"(?:create|write)Timestamp\":(\d+)"), only=s.prefix
    )
    for topic, decoder, formatter in (
        ("__share_group_state", "--share-group-state-decoder", "group.share.ShareGroupStateMessageFormatter"),
        ("__consumer_offsets", "--offsets-decoder", "ShareGroupMessageFormatter"),
    ):
        segment = s.data_dir / f"{topic}-0" / "00000000000000000000.log"
        s.run(f"--files {segment} {decoder}", at=(), show=own)
        everything = f"--topic {topic} --partition 0 --offset earliest --timeout-ms {IDLE_MS}"
        s.run(f"{everything} --formatter {FORMATTERS}.{formatter}", tool="kafka-console-consumer", show=own)


@story("kafka-console-share-consumer", PROFILE)
def records_acknowledged(s: ToolStory) -> None:
    orders = s.topic()
    s.write(orders.name, *"abcde")
    group = ("--group", s.name("sharers"))
    joined(s, orders, group="sharers").leave(quiet=True)
    read = ("--topic", orders.name, *group, *ALL_SHOWN, "--timeout-ms", IDLE_MS * 10, "--max-messages")
    for how in ("5 --release", "2 --reject", "2", "1 --release", "1"):
        s.run(*read, *how.split())
        s.run("--describe", *group, tool="kafka-share-groups")
    s.run("--topic", orders.name, *group, f"--timeout-ms {IDLE_MS}")
    s.run(*read, "1 --release --reject")
