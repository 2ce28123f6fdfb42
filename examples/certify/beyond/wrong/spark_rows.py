"""Structured Streaming: stores the available input as rows of PostgreSQL by foreachBatch, then ends.

spark-submit --jars ... spark_rows.py DATA
"""

import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

place = "jdbc:postgresql://{ODRADEK_POSTGRES_HOST}:{ODRADEK_POSTGRES_PORT}/{ODRADEK_POSTGRES_DATABASE}"
database = {
    "driver": "org.postgresql.Driver",
    "user": os.environ["ODRADEK_POSTGRES_USER"],
    "password": os.environ["ODRADEK_POSTGRES_PASSWORD"],
}
spark = SparkSession.builder.appName("rows").getOrCreate()
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
    batch.write.jdbc(place.format(**os.environ), "journal", "append", database)


query = (
    rows.writeStream.foreachBatch(store)
    .option("checkpointLocation", f"{sys.argv[1]}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
