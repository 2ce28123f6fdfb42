"""Encode Arrow columns to record batches, and decode record batches to Arrow columns, in compiled code without I/O."""
