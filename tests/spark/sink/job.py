"""A driver that copies a topic exactly once, to be killed: job.py BOOTSTRAP FROM TO CHECKPOINT NAME."""

import sys

from odradek.spark import session


def copy(spark, bootstrap_servers: str, source: str, topic: str, checkpoint: str, name: str):
    kafka = {"kafka.bootstrap.servers": bootstrap_servers}
    rows = (
        spark.readStream.format("kafka")
        .options(**kafka)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 200)
        .load()
    )
    return (
        rows.select("key", "value")
        .writeStream.format("odradek.exactly_once")
        .options(**kafka)
        .option("topic", topic)
        .option("checkpointLocation", checkpoint)
        .queryName(name)
        .trigger(availableNow=True)
        .start()
    )


if __name__ == "__main__":
    copy(session("copy", master="local[2, 4]"), *sys.argv[1:]).awaitTermination()
