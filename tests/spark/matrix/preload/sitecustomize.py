"""Spark's daemons fork its Python workers; here they have the sink and what it needs before the first fork.

A worker of a driver that lives for half a minute would spend more on its imports than on its work. Spark starts the daemons
of plans and commits under their own name, so this is where they can be reached: each Python looks for such a file.
"""

import sys

if "pyspark.daemon" in sys.orig_argv and sys.orig_argv[-1] in (
    "pyspark.worker",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.python_streaming_sink_runner",
):
    import pyarrow.compute
    import pyspark.worker  # noqa: F401
    from pyspark.sql.worker import python_streaming_sink_runner, write_into_data_source  # noqa: F401

    from tests.spark.matrix import staged  # noqa: F401

    if sys.orig_argv[-1] == "pyspark.worker":
        import numpy

        from odradek.spark.records.columns import bytes_column
        from odradek.spark.records.encode import Rows, encode_batches
        from odradek.spark.records.partitioner import partition_by_key

        # Compiled, or read from the cache of what was, once for all workers.
        keys = pyarrow.array([b"key"])
        one = numpy.zeros(1, numpy.int64)
        partition_by_key(bytes_column(keys), one + 1, one - 1)
        encode_batches(
            Rows.of(keys, 0, keys=keys),
            one,
            producer_id=0,
            epoch=0,
            base_sequence=0,
            compression="none",
            batch_size_bytes=1000,
        )
