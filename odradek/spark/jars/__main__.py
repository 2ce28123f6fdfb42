"""python -m odradek.spark.jars: the connector's jars, by commas, as ``spark-submit --jars`` takes them."""

from odradek.spark.environment import connector_jars

print(",".join(map(str, connector_jars())))
