"""What the broker was asked and what it answered, as it happened; and the life of a transaction, from the logs."""
