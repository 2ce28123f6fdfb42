"""Spark beside the broker: sink, segment files, audit, kit, and the unmodified connector."""
