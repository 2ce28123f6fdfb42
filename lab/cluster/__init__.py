"""Operations on a whole cluster that Kafka does not have: reset, snapshots, clock skew, power loss, damaged files."""
