"""A Spark job for a broker with TLS, SASL and ACLs: Spark's own connector reads, the exactly-once sink writes.

python job.py BOOTSTRAP_SERVERS CA CHECKPOINT     # the user comes from KAFKA_USER and KAFKA_PASSWORD

With ACLs it needs READ on the topic `orders`. The sink, whose name is `invoices-job`, needs WRITE on the topic `invoices`
and on transactional ids with the prefix `invoices-job-`, READ on the group `invoices-job`, on groups with the prefix
`odradek-query-` and on the topic `__consumer_offsets`.
"""

import os
import sys

from pyspark.sql import SparkSession

from odradek.spark import session

SINK = "invoices-job"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def connection(bootstrap_servers: str, ca: str, user: str, password: str) -> dict[str, str]:
    """The options for both the connector and the sink. The file ``ca`` must be on the driver and on each executor."""
    return {
        "kafka.bootstrap.servers": bootstrap_servers,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": ca,
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{SCRAM} required username="{user}" password="{password}";',
    }


def bill(spark: SparkSession, options: dict[str, str], checkpoint: str) -> None:
    """Write an invoice for each order."""
    orders = (
        spark.readStream.format("kafka")
        .options(**options)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        orders.selectExpr("key", "concat('invoice of ', cast(value as string)) as value")
        .writeStream.format("odradek.exactly_once")
        .options(**options)
        .option("topic", "invoices")
        .option("name", SINK)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    bootstrap_servers, ca, checkpoint = sys.argv[1:]
    options = connection(bootstrap_servers, ca, os.environ["KAFKA_USER"], os.environ["KAFKA_PASSWORD"])
    bill(session("invoices"), options, checkpoint)
