"""Which of Kafka's broker settings change anything here.

The rest is accepted, checked and shown, so that a configuration made for Kafka starts this broker too.
"""

from storage.config import TOPIC_CONFIGS

_OF_THE_BROKER = {
    "add.partitions.to.txn.retry.backoff.max.ms",
    "add.partitions.to.txn.retry.backoff.ms",
    "advertised.listeners",
    "auto.create.topics.enable",
    "auto.leader.rebalance.enable",
    "broker.id",
    "broker.rack",
    "connections.max.idle.ms",
    "controller.listener.names",
    "default.replication.factor",
    "delete.topic.enable",
    "fetch.max.bytes",
    "group.initial.rebalance.delay.ms",
    "group.max.session.timeout.ms",
    "group.max.size",
    "group.min.session.timeout.ms",
    "inter.broker.listener.name",
    "leader.imbalance.check.interval.seconds",
    "listener.security.protocol.map",
    "listeners",
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.enable",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.max.bytes.per.second",
    "log.dir",
    "log.dirs",
    "log.flush.offset.checkpoint.interval.ms",
    "log.flush.start.offset.checkpoint.interval.ms",
    "log.initial.task.delay.ms",
    "log.retention.check.interval.ms",
    "max.connections",
    "max.connections.per.ip",
    "max.incremental.fetch.session.cache.slots",
    "max.request.partition.size.limit",
    "node.id",
    "num.partitions",
    "offset.metadata.max.bytes",
    "offsets.commit.timeout.ms",
    "offsets.retention.check.interval.ms",
    "offsets.retention.minutes",
    "offsets.topic.compression.codec",
    "offsets.topic.num.partitions",
    "offsets.topic.replication.factor",
    "offsets.topic.segment.bytes",
    "producer.id.expiration.check.interval.ms",
    "producer.id.expiration.ms",
    "replica.lag.time.max.ms",
    "replica.selector.class",
    "request.timeout.ms",
    "socket.listen.backlog.size",
    "socket.request.max.bytes",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    "transaction.max.timeout.ms",
    "transaction.partition.verification.enable",
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    "transaction.state.log.min.isr",
    "transaction.state.log.num.partitions",
    "transaction.state.log.replication.factor",
    "transaction.state.log.segment.bytes",
    "transactional.id.expiration.ms",
}
WITHOUT_EFFECT = {
    "alter.config.policy.class.name": "the broker has no policies",
    "authorizer.class.name": "the broker has no authorization, and serves every client",
    "client.quota.callback.class": "the broker has no quotas",
    "create.topic.policy.class.name": "the broker has no policies",
    "max.connection.creation.rate": "the broker accepts connections as they come",
    "max.connections.per.ip.overrides": "max.connections.per.ip holds for every address",
    "metric.reporters": "the broker has no metrics",
}
"""Settings that a user would rely on and that have no effect yet, each with what holds instead: a start warns of them."""
# The defaults of topics have the effect that the topic's own setting has.
_OF_TOPICS = {synonym for key in TOPIC_CONFIGS.values() if key.effective for synonym in key.synonyms}

EFFECTIVE = frozenset(_OF_THE_BROKER | _OF_TOPICS)
