"""Finds the error codes in a response, both its top-level code and those in its arrays, and returns their names."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from .errors import ErrorCode


def error_codes(struct: Any, response: object) -> Iterator[int]:
    """Each error code of a response, 0 included. ``struct`` is the class of the response, as `protocol.versions.at_version`
    returns it.
    """
    codes, nested = _places(struct)
    for name in codes:
        yield int(getattr(response, name))
    for name, is_array, inner in nested:
        content = getattr(response, name)
        if content is not None:
            for each in content if is_array else (content,):
                yield from error_codes(inner, each)


def error_name(code: int) -> str:
    """Name of an error code, such as ``NOT_COORDINATOR`` for 16; the number for a code of a later release."""
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return str(int(code))


@cache
def _places(struct: Any) -> tuple[tuple[str, ...], tuple[tuple[str, bool, Any], ...]]:
    """(names of the fields that are error codes, fields whose structs contain error codes as (name, is array, class))."""
    codes = tuple(wire.name for wire in struct.__wire__ if wire.name.endswith("error_code"))
    nested = tuple(
        (wire.name, wire.is_array, wire.nested)
        for wire in struct.__wire__
        if wire.nested is not None and any(_places(wire.nested))
    )
    return codes, nested
