"""Structured Streaming with Spark's Kafka sink: copies the available input, then ends.

spark-submit --jars ... spark_sink.py BOOTSTRAP INSTANCE DATA
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

bootstrap, data = sys.argv[1], sys.argv[3]
kafka = {"kafka.bootstrap.servers": bootstrap}
spark = SparkSession.builder.appName("copier").getOrCreate()
records = (
    spark.readStream.format("kafka")
    .options(**kafka, subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger="20")
    .option("kafka.isolation.level", "read_committed")
    .load()
)
copies = records.select("key", f.upper(f.col("value").cast("string")).alias("value"))
query = (
    copies.writeStream.format("kafka")
    .options(**kafka, topic="out", checkpointLocation=f"{data}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
