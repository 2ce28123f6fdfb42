"""Structured Streaming with an exactly-once sink: copies the available input, then ends.

spark-submit --jars ... spark_copier.py BOOTSTRAP INSTANCE DATA
"""

import sys

from pyspark.sql import functions as f

from odradek.spark import session

bootstrap, data = sys.argv[1], sys.argv[3]
kafka = {"kafka.bootstrap.servers": bootstrap}
spark = session("copier")
records = (
    spark.readStream.format("kafka")
    .options(**kafka, subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger="20")
    .option("kafka.isolation.level", "read_committed")
    .load()
)
copies = records.select("key", f.upper(f.col("value").cast("string")).alias("value"))
query = (
    copies.writeStream.format("odradek.exactly_once")
    .options(**kafka, topic="out", name="copier", checkpointLocation=f"{data}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
