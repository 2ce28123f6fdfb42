"""Partition logs on disk, in Kafka's file format."""

from compiled.finder import use_compiled

use_compiled()  # before a module of this package is imported
