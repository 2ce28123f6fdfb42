"""The broker beside others: the same loads to each of them, in turns, and the ratio of each figure to Apache Kafka's."""
