"""Certifying a job on a cluster behind a proxy. A broker of ours is used as the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from odradek.broker import Broker
from odradek.certify.plans.exploration import Coverage
from odradek.certify.plans.faults import BY_NAME, Reach
from odradek.certify.runs.foreign import Foreign
from odradek.certify.workload import Seed, Workload
from odradek.errors import OdradekError
from tests.odradek.certify.zoo import certified, python
from tests.support.clients import PATIENCE, ConfluentProducer, eventually
from tests.support.deadlines import LONG_TEST_S


@pytest.fixture(scope="module")
def upstream() -> Iterator[Broker]:
    with Broker(topics=["theirs:1"]) as broker:
        yield broker


def workload(upstream: Broker, *topics: str) -> Workload:
    from odradek.certify.jobs.command import Command

    return Workload(
        Command(("job",)),
        outputs=("out",),
        topics=topics,
        seeds=(Seed("in", "a", "k"),),
        upstream=upstream.bootstrap_servers,
    )


def a_member(bootstrap: str) -> Consumer:
    consumer = Consumer(
        {**PATIENCE, "bootstrap.servers": bootstrap, "group.id": "job", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["in"])
    eventually(lambda: consumer.poll(0.1) is not None)
    consumer.commit(asynchronous=False)
    return consumer


def test_each_run_begins_with_the_input_alone(upstream: Broker) -> None:
    cluster = Foreign(workload(upstream, "in:1", "out:2"))
    cluster.start()
    with closing(cluster):
        producer = ConfluentProducer(cluster.bootstrap_servers, transactional_id="t")
        producer.init()
        producer.begin()
        producer.send("out", ["A"], keys=["K"])
        (waits,) = eventually(lambda: cluster.open_transactions(["out"]))
        assert "consumers stop at offset 0" in waits
        producer.commit()
        consumer = a_member(cluster.bootstrap_servers)
        assert [(each.key, each.value, each.outcome) for each in cluster.records(["out"])] == [
            ("K", "A", "committed")
        ]
        assert [each["group"] for each in cluster.groups()] == ["job"]

        cluster.restore()
        assert cluster.groups() == []
        assert cluster.records(["out"], "read_uncommitted") == []
        written = cluster.records(["in"], "read_uncommitted")
        assert [(each.value, each.outcome) for each in written] == [("a", "committed"), ("a", "aborted")]
        consumer.close()
        producer.close()
    assert {each.topic for each in upstream.partitions()} == {"theirs"}


def test_existing_topics_and_groups_are_not_changed(upstream: Broker) -> None:
    """A certifier changes no existing topics and groups of a cluster.

    This holds if a topic of the job exists, which is an error, and if the certifier creates the job's topics.
    """
    a_commit(upstream.bootstrap_servers, "theirs-before")
    cluster = Foreign(workload(upstream, "theirs:1"))
    with closing(cluster), pytest.raises(OdradekError, match="theirs"):
        cluster.start()
    cluster = Foreign(workload(upstream, "in:1", "out:1"))
    cluster.start()
    with closing(cluster):
        a_commit(upstream.bootstrap_servers, "theirs-meanwhile")
        a_commit(cluster.bootstrap_servers, "ours")
        cluster.restore()
        assert {each["group"] for each in cluster.groups()} == {"theirs-before", "theirs-meanwhile"}
    assert {each.topic for each in upstream.partitions()} == {"theirs"}


def a_commit(bootstrap: str, group: str) -> None:
    consumer = Consumer({**PATIENCE, "bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition("theirs", 0, 0)], asynchronous=False)
    consumer.close()


def test_faults_on_a_foreign_cluster_affect_calls_only() -> None:
    assert Foreign.reaches == (Reach.CALL,)


@pytest.mark.more
@pytest.mark.timeout(LONG_TEST_S)
def test_a_job_is_certified_there(upstream: Broker, tmp_path: Path) -> None:
    """A job is certified on a cluster behind a proxy.

    The soak test checks that the wrong jobs are found, too, on Apache Kafka (`tests.odradek.certify.soak`).
    """
    certificate = certified(
        python("right/copier"), tmp_path, upstream=upstream.bootstrap_servers, budget_s=3.0
    ).run()
    assert certificate.failures == []
    assert Coverage.CLEAN in certificate.cells.values()
    struck = {
        BY_NAME[name].reach for (_, name), found in certificate.cells.items() if found is Coverage.CLEAN
    }
    assert struck == {Reach.CALL}
