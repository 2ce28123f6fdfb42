"""The messages of every API, one module each, one class family for all versions.

The modules beside this one are generated (``python -m protocol.messages.generate``) and checked in.
"""

from collections.abc import Sequence

Chunk = bytes | bytearray | memoryview

# What a ``records`` field of a response may hold: one buffer, or several that follow one another on the
# wire. Neither is copied on its way to the socket.
Records = Chunk | Sequence[Chunk] | None
