"""Import the sink and its dependencies in Spark's daemons, before these fork the Python workers.

A worker of a driver that lives for half a minute would spend most of its time on imports. Spark starts some daemons with
fixed commands, but every Python imports a sitecustomize module, so the imports are here.
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

        # Compile the partitioner, or load it from numba's cache, once for all workers.
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
