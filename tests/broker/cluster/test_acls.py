"""ACLs in a broker: each node's authorizer follows the metadata through kills, resets and snapshots."""

from __future__ import annotations

from pathlib import Path

from broker.metadata.acls import ALLOW, ANY, LITERAL, Acl, AclFilter
from broker.security.authorizer.settings import STANDARD_AUTHORIZER
from lab.cluster.reset import reset
from lab.cluster.snapshots import Snapshots
from tests.support.in_process import InProcess

SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
EVERYTHING = AclFilter(ANY, None, ANY, None, None, ANY, ANY)


def acl(name: str) -> Acl:
    return Acl(2, name, LITERAL, "User:alice", "*", 3, ALLOW)


class Story(InProcess):
    def create(self, name: str) -> None:
        self.run(self.cluster.metadata.acl_control.create_acls([acl(name)]))

    def delete(self) -> None:
        self.run(self.cluster.metadata.acl_control.delete_acls([EVERYTHING]))

    def readable(self, node_id: int) -> set[str]:
        """The topics that alice may read at a node."""
        authorizer = self.cluster.nodes[node_id].node.authorizer
        assert authorizer is not None
        return {
            name
            for name in ("a", "b", "c")
            if authorizer.authorize("User:alice", "127.0.0.1", "READ", "TOPIC", name)
        }


def test_every_node_follows_the_acls(tmp_path: Path) -> None:
    with Story(tmp_path, "--nodes", "2", settings=SETTINGS) as broker:
        broker.create("a")
        assert broker.readable(1) == broker.readable(2) == {"a"}
        broker.call(lambda: broker.cluster.kill_node(2))
        dead = broker.cluster.nodes[2]
        broker.create("b")
        assert broker.readable(1) == {"a", "b"}
        assert broker.readable(2) == {"a"}, "a dead node's authorizer does not change"
        broker.run(broker.cluster.start_node(2))
        assert broker.cluster.nodes[2] is not dead
        broker.delete()
        broker.create("c")
        assert broker.readable(1) == broker.readable(2) == {"c"}


def test_acls_outlive_restarts_go_with_a_reset_and_come_back_with_a_snapshot(tmp_path: Path) -> None:
    with Story(tmp_path, settings=SETTINGS) as broker:
        snapshots = Snapshots(broker.cluster)
        broker.create("a")
        taken = broker.run(snapshots.take())
        broker.delete()
        broker.create("b")
        broker.run(reset(broker.cluster))
        assert broker.readable(1) == set(), "the reset removes all ACLs"
        broker.run(snapshots.restore(taken.id))
        assert broker.readable(1) == {"a"}
    with Story(tmp_path, settings=SETTINGS) as again:
        assert again.readable(1) == {"a"}
