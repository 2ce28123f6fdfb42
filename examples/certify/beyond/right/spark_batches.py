"""Structured Streaming: stores the available input as rows of PostgreSQL by foreachBatch, then ends.

spark-submit --jars ... spark_batches.py DATA
"""

import os
import sys

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.builder.appName("batches").getOrCreate()
records = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", os.environ["KAFKA_BOOTSTRAP_SERVERS"])
    .options(subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger="20")
    .option("kafka.isolation.level", "read_committed")
    .load()
)
value = f.col("value").cast("string")
rows = records.select(value.alias("id"), f.substring(value, 2, 9).cast("long").alias("amount"))


def store(batch: DataFrame, batch_id: int) -> None:
    with psycopg.connect(os.environ["ODRADEK_POSTGRES"]) as database:
        added = database.execute(
            "INSERT INTO batches (job, batch) VALUES ('spark', %s) ON CONFLICT DO NOTHING", [batch_id]
        )
        if added.rowcount:
            with database.cursor().copy("COPY journal (id, amount) FROM STDIN") as copy:
                for row in batch.toLocalIterator():
                    copy.write_row(row)


query = (
    rows.writeStream.foreachBatch(store)
    .option("checkpointLocation", f"{sys.argv[1]}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
