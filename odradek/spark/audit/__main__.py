"""The audit as a program: `python -m odradek.spark.audit`, or as a Spark job:
spark-submit odradek/spark/audit/__main__.py DATA_DIR --out OUT
"""

from odradek.commands.audit import audit

if __name__ == "__main__":
    audit(prog_name="odradek audit")
