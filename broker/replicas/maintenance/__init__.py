"""Background work on partitions: flushing, checkpoints, retention, compaction, expiration of idle producers."""
