"""Tools that inspect a broker and its cluster.

They are kafka-cluster, -features, -metadata-quorum, -broker-api-versions, -log-dirs, -acls and -delegation-tokens.
"""

from __future__ import annotations

from tests.differential.console_tools.normal import Shown
from tests.differential.console_tools.story import ToolStory, story

NO_CONTROLLER = ("--bootstrap-controller", "127.0.0.1:1")


@story("kafka-broker-api-versions")
def every_api(s: ToolStory) -> None:
    s.run()


@story("kafka-cluster")
def of_one_broker(s: ToolStory) -> None:
    where = ("--bootstrap-server", s.bootstrap)
    port = Shown(hidden=(rf"\b({s.port})\b",))
    s.run("cluster-id", *where, at=())
    s.run("list-endpoints", *where, at=(), show=port)
    s.run("list-endpoints --include-fenced-brokers", *where, at=(), show=port)
    s.run("unregister --id 7", *where, at=())
    s.run("unregister --id", -1, *where, at=())


@story("kafka-cluster")
def api_versions(s: ToolStory) -> None:
    s.run("api-versions --bootstrap-server", s.bootstrap, at=(), show=Shown(hidden=(rf"\b({s.port})\b",)))


@story("kafka-cluster")
def unregistered_controllers(s: ToolStory) -> None:
    where = ("--bootstrap-server", s.bootstrap)
    for controller_id in (1, 7, -1):
        s.run("unregister-controller --id", controller_id, *where, at=())


@story("kafka-cluster")
def by_a_controller(s: ToolStory) -> None:
    """kafka-cluster gets a broker's address in place of a controller's."""
    s.run(f"cluster-id --bootstrap-controller {s.bootstrap}", at=())
    s.run(f"list-endpoints --bootstrap-controller {s.bootstrap}", at=())


@story("kafka-features")
def described(s: ToolStory) -> None:
    epoch = Shown(hidden=(r"Epoch: (\d+)",))
    s.run("describe", show=epoch)
    s.run("describe --node-id 1", show=epoch)
    s.run("describe --node-id", -1)


@story("kafka-features")
def mapped(s: ToolStory) -> None:
    """kafka-features prints version mappings and feature dependencies, which it does not get from the broker."""
    s.run("version-mapping")
    s.run("version-mapping --release-version 3.9-IV0")
    s.run("version-mapping --release-version 1.0")
    s.run("feature-dependencies --feature transaction.version=2 --feature group.version=1")
    s.run("feature-dependencies --feature metadata.version=15")
    s.run("feature-dependencies --feature no.such.feature=1")
    s.run("feature-dependencies --feature group.version=9")


@story("kafka-features", profile="features")
def changed(s: ToolStory) -> None:
    shown = Shown(only="(group|metadata|transaction).version", hidden=(r"Epoch: (\d+)",), sorted=True)
    for command in (
        "downgrade --feature transaction.version=1",
        "downgrade --feature transaction.version=1 --dry-run",
        "downgrade --feature transaction.version=1 --unsafe",
        "upgrade --feature transaction.version=2 --dry-run",
        "upgrade --feature transaction.version=2",
        "upgrade --feature transaction.version=2",
        "disable --feature group.version",
        "disable --feature group.version --unsafe",
        "disable --feature group.version --dry-run",
        "upgrade --feature group.version=1 --feature transaction.version=2",
        "upgrade --release-version 4.4-IV2",
        "upgrade --metadata 4.4-IV2",
        "downgrade --metadata 4.0-IV0",
        "downgrade --metadata 4.0-IV0 --unsafe",
        "downgrade --metadata 3.3-IV3",
        "upgrade --metadata 9.9",
        "upgrade --feature transaction.version=9",
        "upgrade --feature no.such.feature=1",
        "upgrade --feature transaction.version",
        "upgrade --feature transaction.version=two",
        "upgrade --feature transaction.version=1",
        "downgrade --feature transaction.version=2",
        "disable --feature metadata.version",
        "upgrade",
        "upgrade --release-version 4.4-IV2 --feature group.version=1",
    ):
        s.run(*command.split(), show=Shown(sorted=True))
        if "dry-run" not in command:
            s.run("describe", show=shown)


@story("kafka-metadata-quorum")
def the_quorum(s: ToolStory) -> None:
    offsets = Shown(hidden_columns=("LogEndOffset", "LastFetchTimestamp", "LastCaughtUpTimestamp"))
    s.run(
        "describe --status",
        show=Shown(hidden=(r"HighWatermark: +(\d+)", r"LeaderEpoch: +(\d+)", r":(\d+)\"")),
    )
    s.run("describe --replication", show=offsets)
    s.run("describe --replication --human-readable", show=Shown(hidden=(r"\t(\d+)\s+\t0", r"(\d+) ms ago")))
    s.run("describe")
    s.run("describe --status --replication")
    s.run("describe --status --human-readable")


@story("kafka-metadata-quorum")
def voters(s: ToolStory) -> None:
    """kafka-metadata-quorum tries to change the voters of a static quorum (of controller.quorum.voters)."""
    directory = ("--controller-directory-id", "AAAAAAAAAAAAAAAAAAAABQ")
    s.run("remove-controller --controller-id 7", *directory)
    s.run("remove-controller --controller-id 1", *directory)
    s.run("remove-controller --controller-id 1", *directory, "--dry-run")
    s.run("remove-controller --controller-id 1 --controller-directory-id x")
    s.run("add-controller")


@story("kafka-log-dirs")
def log_dirs(s: ToolStory) -> None:
    orders = s.orders(2)
    s.write(orders, "a" * 1000)
    s.write(orders, "b", partition=1)
    sizes = Shown(hidden=(r'"(?:total|usable)Bytes":(\d+)', r'"error":null,"logDir":"([^"]*)"'))
    topics = ("--topic-list", orders)
    s.run("--describe", *topics, show=sizes)
    s.run("--describe", *topics, "--broker-list 1", show=sizes)
    s.run("--describe", *topics, "--broker-list 1,7", show=sizes)
    s.run("--describe", *topics, "--broker-list 1,1", show=sizes)
    s.run(f"--describe --topic-list {s.name('nowhere')}", show=sizes)
    s.run(*topics)


@story("kafka-acls")
def refused(s: ToolStory) -> None:
    """A broker without an authorizer refuses requests for ACLs."""
    topic = ("--topic", s.name("orders"))
    s.run("--list")
    s.run("--list", *topic)
    s.run("--add --allow-principal User:alice --operation Read", *topic)
    s.run("--add --allow-principal User:alice --producer", *topic)
    s.run("--remove --force --allow-principal User:alice --operation Read", *topic)
    s.run("--remove --force", *topic)
    s.run("--add --allow-principal alice", *topic)
    s.run("--add --allow-principal User:alice --operation Fly", *topic, show=Shown(hidden=(r"\[(.*)\]",)))


@story("kafka-delegation-tokens")
def tokens(s: ToolStory) -> None:
    """kafka-delegation-tokens on a listener without authentication, at a broker without a secret key."""
    command = ("--command-config", s.file("empty.properties", ""))
    hmac = ("--hmac", "aGVsbG8gd29ybGQhISE=")
    s.run("--create --max-life-time-period", -1, *command)
    s.run("--create --max-life-time-period", -1, "--renewer-principal User:alice", *command)
    s.run("--describe", *command)
    s.run("--describe --owner-principal User:alice", *command)
    s.run("--renew --renew-time-period", -1, *hmac, *command)
    s.run("--expire --expiry-time-period", -1, *hmac, *command)
