"""The tools for groups: consumer groups, share groups, and streams groups, which our broker does not have."""

from __future__ import annotations

from tests.differential.console_tools.normal import Shown
from tests.differential.console_tools.story import ToolStory, story

SORTED = Shown(sorted=True)
SETS = Shown(hidden=(r"(?:are|state values): (.*)",))
"""Hides the list of valid values, which the tool prints in any order."""


@story("kafka-consumer-groups")
def of_offsets_only(s: ToolStory) -> None:
    """A group without members is listed, described, reset and deleted."""
    orders, audit, group = s.orders(2), s.orders(name="audit"), s.name("readers")
    s.write(orders, *"abcdefgh")
    s.write(orders, "i", partition=1)
    s.commit(group, orders, 3, 1)
    s.commit(group, audit, 0)
    s.run("--list", show=Shown(only=s.prefix))
    s.run("--list --state", show=Shown(only=s.prefix))
    s.run("--list --type", show=Shown(only=s.prefix))
    s.run("--list --state Empty --type classic", show=Shown(only=s.prefix))
    s.run("--list --state Stable,PreparingRebalance", show=Shown(only=s.prefix))
    of_group = ("--group", group)
    for what in (
        "--offsets",
        "--members",
        "--state",
        "--offsets --verbose",
        "--members --verbose",
        "--state --verbose",
    ):
        s.run("--describe", *of_group, *what.split(), show=SORTED)
    s.run("--delete-offsets", *of_group, f"--topic {audit}")
    s.run("--delete-offsets", *of_group, f"--topic {orders}:1")
    s.run("--describe", *of_group, show=SORTED)
    s.run("--delete", *of_group)
    s.run("--list", show=Shown(only=s.prefix))


@story("kafka-consumer-groups")
def offsets_reset(s: ToolStory) -> None:
    orders, group = s.orders(2), s.name("readers")
    s.write(orders, *"abcdefgh")
    s.write(orders, *"ij", partition=1)
    s.commit(group, orders, 3, 1)
    reset = ("--reset-offsets", "--group", group)
    exported = s.run(*reset, f"--topic {orders} --to-current --export --dry-run", show=SORTED)
    for scenario in (
        "--to-earliest",
        "--to-latest",
        "--to-offset 4",
        "--to-offset 100",
        "--shift-by -2",
        "--shift-by 50",
    ):
        s.run(*reset, f"--topic {orders}", *scenario.split(), "--dry-run", show=SORTED)
    s.run(*reset, f"--topic {orders}:0 --to-datetime 2020-01-01T00:00:00.000 --dry-run")
    s.run(*reset, f"--topic {orders} --to-datetime 2099-01-01T00:00:00.000 --dry-run", show=SORTED)
    s.run(*reset, "--all-topics --by-duration PT24H --dry-run", show=SORTED)
    s.run(*reset, f"--topic {orders}:0,1 --to-earliest --execute", show=SORTED)
    s.run(*reset, "--from-file", s.file("offsets.csv", exported.out), "--execute", show=SORTED)
    s.run(f"--describe --group {group}", show=SORTED)
    s.run(f"--reset-offsets --group {s.name('new')} --topic {orders} --to-latest --execute", show=SORTED)
    s.run("--list", show=Shown(only=s.prefix, sorted=True))
    s.run("--describe --all-groups --offsets", show=Shown(only=s.prefix, sorted=True))


@story("kafka-consumer-groups")
def with_a_classic_member(s: ToolStory) -> None:
    orders, group = s.orders(2), s.name("readers")
    s.write(orders, *"abcdefgh")
    s.commit(group, orders, 3)
    member(s, group, orders, group_protocol="classic")


@story("kafka-consumer-groups")
def with_a_member_of_kip_848(s: ToolStory) -> None:
    orders, group = s.orders(2), s.name("readers")
    s.write(orders, *"abcdefgh")
    s.commit(group, orders, 3)
    member(s, group, orders, group_protocol="consumer")


@story("kafka-consumer-groups")
def with_a_static_member(s: ToolStory) -> None:
    orders, group = s.orders(2), s.name("readers")
    member(s, group, orders, group_protocol="classic", group_instance_id="seat-1")


def member(s: ToolStory, group: str, orders: str, **config: str) -> None:
    of_group = ("--group", group)
    with s.consumer(group, orders, count=2, **config):
        s.run("--list --state --type", show=Shown(only=s.prefix))
        for what in (
            "--offsets",
            "--members",
            "--state",
            "--offsets --verbose",
            "--members --verbose",
            "--state --verbose",
        ):
            s.run("--describe", *of_group, *what.split(), show=SORTED)
        s.run("--reset-offsets", *of_group, f"--topic {orders} --to-earliest --execute")
        s.run("--reset-offsets", *of_group, f"--topic {orders} --to-earliest --dry-run", show=SORTED)
        s.run("--delete-offsets", *of_group, f"--topic {orders}", show=SORTED)
        s.run("--delete", *of_group)
    s.run("--describe", *of_group, "--state")
    s.run("--describe", *of_group, "--members")


@story("kafka-consumer-groups")
def what_is_not_there(s: ToolStory) -> None:
    orders, group = s.orders(), s.name("readers")
    absent = ("--group", s.name("absent"))
    for what in ("--offsets", "--members", "--state"):
        s.run("--describe", *absent, what)
    s.run("--delete", *absent)
    s.run("--delete-offsets", *absent, f"--topic {orders}")
    s.commit(group, orders, 0)
    s.run(f"--delete-offsets --group {group} --topic {s.name('nowhere')}")
    s.run(f"--delete-offsets --group {group} --topic {orders}:7")
    reset = ("--reset-offsets", "--group", group)
    s.run(*reset, f"--topic {s.name('nowhere')} --to-earliest --execute")
    s.run(*reset, f"--topic {orders}:7 --to-earliest --execute")
    s.run(*reset, f"--topic {orders}:7 --to-offset 1 --execute")
    s.run(*reset, f"--topic {orders} --to-datetime yesterday --execute")
    s.run(*reset, f"--topic {orders} --by-duration 1h --execute")
    s.run(f"--delete --group {group} --group {s.name('absent')}", show=SORTED)
    s.run("--list --state Stopped", show=SETS)
    s.run("--list --type sharing", show=SETS)
    s.run("--validate-regex orders-[0-9")
    s.run("--validate-regex orders-[0-9]+")


@story("kafka-groups")
def of_all_types(s: ToolStory) -> None:
    orders = s.orders()
    s.commit(s.name("simple"), orders, 0)
    own = Shown(only=f"{s.prefix}|GROUP", sorted=True)
    with (
        s.consumer(s.name("classic"), orders, group_protocol="classic"),
        s.consumer(s.name("modern"), orders, group_protocol="consumer"),
    ):
        s.run("--list", show=own)
        for filter in (
            "--group-type classic",
            "--group-type consumer",
            "--protocol consumer",
            "--consumer",
            "--share",
            "--streams",
        ):
            s.run("--list", *filter.split(), show=own)
    s.run("--list --group-type consumer --protocol connect", show=own)
    s.run("--list --group-type nonsense", show=own)


@story("kafka-share-groups")
def of_share_groups(s: ToolStory) -> None:
    orders, group = s.orders(), s.name("sharers")
    s.run("--list")
    s.run("--list --state")
    s.run(f"--describe --group {group}")
    s.run(f"--describe --group {group} --members")
    s.run(f"--delete --group {group}")
    s.run(f"--delete-offsets --group {group} --topic {orders}")
    s.run(f"--reset-offsets --group {group} --topic {orders} --to-earliest --execute")
    s.run("--list --state nonsense", show=SETS)


@story("kafka-share-groups")
def of_a_consumer_group(s: ToolStory) -> None:
    orders, group = s.orders(), s.name("readers")
    s.commit(group, orders, 0)
    s.run(f"--describe --group {group}")
    s.run(f"--delete --group {group}")


@story("kafka-console-share-consumer")
def of_records(s: ToolStory) -> None:
    orders = s.orders()
    s.write(orders, *"abc")
    s.run(f"--topic {orders} --group {s.name('sharers')} --timeout-ms 1000")


@story("kafka-streams-groups")
def of_streams_groups(s: ToolStory) -> None:
    orders, group = s.orders(), s.name("streamers")
    s.run("--list")
    s.run("--list --state")
    s.run(f"--describe --group {group}")
    s.run(f"--describe --group {group} --members")
    s.run(f"--delete --group {group}")
    s.run(f"--delete-offsets --group {group} --input-topic {orders}")
    s.run(f"--reset-offsets --group {group} --input-topic {orders} --to-earliest --execute")


@story("kafka-streams-groups")
def on_a_consumer_group(s: ToolStory) -> None:
    orders, group = s.orders(), s.name("readers")
    s.commit(group, orders, 0)
    s.run(f"--describe --group {group}")
    s.run(f"--delete --group {group}")
