"""What is used of kio, imported without hypothesis.

kio imports hypothesis wherever it is installed, for tests of its own: twice the time that everything else here takes. Spark
starts two Python processes for each micro-batch, which have nothing to test.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

_FORGONE = "hypothesis"


@contextlib.contextmanager
def _forgoing() -> Iterator[None]:
    """Imports of hypothesis fail, which kio provides for; no other imports are touched."""
    if _FORGONE in sys.modules:
        yield
        return
    sys.modules[_FORGONE] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[_FORGONE]


with _forgoing():
    from kio.schema.errors import ErrorCode
    from kio.serial import entity_writer

__all__ = ["ErrorCode", "entity_writer"]
