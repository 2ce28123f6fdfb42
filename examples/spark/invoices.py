"""The job under test: reads orders and writes one invoice for each, exactly once.

python invoices.py BOOTSTRAP_SERVERS ORDERS INVOICES CHECKPOINT     # handles the existing orders, then ends
spark-submit --jars "$(odradek spark jars)" invoices.py ...         # the same on a cluster
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from odradek.spark import session

ORDER = "number INT, customer STRING, net_cents INT"
TAX_PERCENT = 19
ORDERS_PER_BATCH = 10


def read(spark: SparkSession, bootstrap_servers: str, topic: str) -> DataFrame:
    """Committed orders as columns of ``ORDER``. Records that are not orders are left out."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ORDERS_PER_BATCH)
        .load()
    )
    orders = records.select(f.from_json(f.col("value").cast("string"), ORDER).alias("order")).select(
        "order.*"
    )
    return orders.where("number IS NOT NULL")


def invoices(orders: DataFrame) -> DataFrame:
    """The logic of the job. It does not use Kafka, so its tests need no broker."""
    gross = f.round(f.col("net_cents") * (100 + TAX_PERCENT) / 100).cast("int")
    return orders.select("number", "customer", gross.alias("gross_cents"))


def main(bootstrap_servers: str, source: str, target: str, checkpoint: str) -> None:
    spark = session("invoices")
    billed = invoices(read(spark, bootstrap_servers, source))
    query = (
        billed.select(f.col("number").cast("string").alias("key"), f.to_json(f.struct("*")).alias("value"))
        .writeStream.format("odradek.exactly_once")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
