"""The Kafka broker: connections, request handlers, partitions, coordinators and cluster metadata."""

from compiled.finder import use_compiled

use_compiled()  # before a module of this package is imported
