"""What looks after partitions while nobody asks: flushing, retention, compaction. `events` is what they are told."""
