"""Kafka's error codes, under the one name that the rest of the code uses.

The enum is kio's (generated from Kafka's ``Errors.java``); members are spelled in lower case there:
``ErrorCode.none``, ``ErrorCode.not_coordinator``.
"""

from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode"]
