"""Background work on partitions: flushing, retention, compaction. `events` has the callbacks that they get."""
