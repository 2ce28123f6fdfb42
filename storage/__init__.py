"""Logs in Kafka's files."""

from compiled.finder import use_compiled

use_compiled()  # before a module of this package is imported
