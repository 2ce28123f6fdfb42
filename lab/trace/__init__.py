"""The trace: requests and responses as they happen; and timelines of transactional ids, from the logs."""
