"""Alters fields of a response, for the action ``answer name=value``, and lists the fields that can be altered. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from copy import copy
from functools import cache
from importlib import import_module
from typing import Any, Final

from protocol.errors import ErrorCode
from protocol.messages.index import APIS
from protocol.versions import at_version, message_name

Value = bool | int | float | str
Fields = Mapping[str, Value]
"""Names of fields with their new values."""

_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint8": 8, "uint16": 16, "uint32": 32}
_KINDS: Final = frozenset({*_BITS, "bool", "float64", "string"})


class BadField(ValueError):
    """The value does not fit the type of the field. The message says which values do."""


@cache
def fields_of(api_key: int) -> Mapping[str, str]:
    """Name -> type in Kafka's schema (``int32``) of each alterable field of an API's responses, at any depth."""
    api = APIS[api_key][0]
    module = vars(import_module(f"protocol.messages.{api}"))
    return dict(_fields(module, module[f"{message_name(api)}Response"]))


def _fields(module: Mapping[str, Any], union: Any) -> Iterator[tuple[str, str]]:
    for name, kind, *_ in union.__fields__:
        struct = module.get(kind.removeprefix("[]"))
        if struct is not None:
            yield from _fields(module, struct)
        elif kind in _KINDS:
            yield name, kind


def known_fields(api_keys: Collection[int]) -> set[str]:
    """The names of the fields that can be altered in the response of at least one of these APIs."""
    return set().union(*(fields_of(key) for key in api_keys))


def checked(api_keys: Collection[int], name: str, text: Value) -> Value:
    """Convert ``text``, the text or JSON value for the response field ``name``, to the field's type.

    Raises ``BadField`` if the value is invalid for the type.
    """
    kinds = {fields_of(key)[name] for key in api_keys if name in fields_of(key)}
    values = {kind: _value(name, kind, text) for kind in sorted(kinds)}
    return next(iter(values.values()))


def _value(name: str, kind: str, text: Value) -> Value:
    if kind == "string":
        return str(text)
    if kind == "bool":
        if str(text).lower() in ("true", "false"):
            return str(text).lower() == "true"
        raise BadField(f"{name} must be true or false, not {text!r}")
    if kind == "float64":
        try:
            return float(text)
        except ValueError:
            raise BadField(f"{name} must be a number, not {text!r}") from None
    return _whole(name, kind, text)


def _whole(name: str, kind: str, text: Value) -> int:
    if name.endswith("error_code") and isinstance(text, str) and text.lower() in ErrorCode.__members__:
        return int(ErrorCode[text.lower()])
    try:
        number = int(str(text))
    except ValueError:
        what = "an error by Kafka's name or number" if name.endswith("error_code") else "a whole number"
        raise BadField(f"{name} must be {what}, not {text!r}") from None
    bits, signed = _BITS[kind], not kind.startswith("u")
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    if not low <= number <= high:
        raise BadField(f"{name} must be between {low} and {high}, not {number}")
    return number


def altered(api_key: int, version: int, response: Any, fields: Fields) -> Any:
    """A copy of a response in which these fields have these values, wherever this version has them.

    Unaltered parts are shared with the original, which must not change: a handler may send it to several requests.
    """
    return _altered(at_version(api_key, version, "response"), response, fields)


def _altered(struct: Any, value: Any, fields: Mapping[str, Value]) -> Any:
    changed: dict[str, Any] = {}
    for wire in struct.__wire__:
        if wire.nested is None:
            if wire.name in fields and not wire.is_array:
                changed[wire.name] = fields[wire.name]
            continue
        content = getattr(value, wire.name)
        if content is not None and _has_any(wire.nested, fields):
            changed[wire.name] = (
                [_altered(wire.nested, each, fields) for each in content]
                if wire.is_array
                else _altered(wire.nested, content, fields)
            )
    if not changed:
        return value
    result = copy(value)
    for name, content in changed.items():
        object.__setattr__(result, name, content)  # shared default instances are frozen
    return result


def _has_any(struct: Any, fields: Collection[str]) -> bool:
    return any(
        wire.name in fields if wire.nested is None else _has_any(wire.nested, fields)
        for wire in struct.__wire__
    )
