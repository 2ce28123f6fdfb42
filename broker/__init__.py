"""The broker: what a node answers, and what it does by itself."""

from compiled.finder import use_compiled

use_compiled()  # before a module of this package is imported
