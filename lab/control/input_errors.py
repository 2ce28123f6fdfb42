"""Error messages for invalid input: msgspec's errors, with the names of parameters and fields."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from lab.faults.values import there_is

_UNKNOWN_FIELD: Final = re.compile(r"Object contains unknown field `(.*)`", re.S)
_BAD_WORD: Final = re.compile(r"Invalid enum value (.*)", re.S)
_SOME_KEY: Final = "[...]"
"""In the path of an invalid value in a ``dict`` (such as ``set[...]``), msgspec writes this in place of the key."""


def not_json(error: msgspec.DecodeError) -> str:
    """Message for a body that cannot be parsed."""
    said = str(error).removeprefix("JSON is malformed: ")
    return f"the body is not JSON: {'it ends too early' if 'truncated' in said else said}"


def not_of_the_form(
    error: msgspec.ValidationError, kind: Any, given: object, what: str, hidden: Collection[str] = ()
) -> str:
    """Error message for the input ``given``: msgspec has raised ``error``, as it is not a valid ``kind``.

    ``what`` is the message's word for a field of the input, such as parameter. ``hidden``: names of fields that
    the message never suggests in place of an unknown name.
    """
    said, _, place = str(error).partition(" - at `$")
    place = place.removesuffix("`").removeprefix(".")
    unknown = _UNKNOWN_FIELD.fullmatch(said)
    if unknown is not None:
        struct = _struct_at(kind, place)
        known = [] if struct is None else [each for each in struct.__struct_fields__ if each not in hidden]
        inside = f"{place}: " if place else ""
        return there_is(f"{inside}the {what}", unknown[1], known)
    if not place:
        return f"the body: {said[:1].lower()}{said[1:]}"
    word = _BAD_WORD.fullmatch(said)
    words = [] if word is None else list(_words(_hint_at(kind, place)))
    if word is not None and words:
        said = f"{word[1]} is not one of {', '.join(words)}"
    return f"the {what} {_named(error, kind, given, place)}: {said[:1].lower()}{said[1:]}"


def _named(error: msgspec.ValidationError, kind: Any, given: object, place: str) -> str:
    """The position of the error: ``place`` with the key of the invalid entry in place of msgspec's placeholder."""
    field, some_key, rest = place.partition(_SOME_KEY)
    entries = given.get(field) if isinstance(given, Mapping) and some_key and not rest else None
    if not isinstance(given, Mapping) or not isinstance(entries, Mapping):
        return place
    for key, value in entries.items():
        try:
            msgspec.convert({**given, field: {key: value}}, type=kind)
        except msgspec.ValidationError as other:
            if str(other) == str(error):
                return f"{field}[{str(key)!r}]"
    return place


def _hint_at(kind: Any, place: str) -> Any:
    """Type of the field at a path such as ``action.fields``; None if the path leads into an array or an object."""
    for name in place.split("."):
        struct = next(_structs(kind), None)
        kind = None if struct is None else get_type_hints(struct).get(name)
    return kind


def _struct_at(kind: Any, place: str) -> Any | None:
    return next(_structs(_hint_at(kind, place) if place else kind), None)


def _structs(hint: Any) -> Iterator[Any]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for each in get_args(hint):
        yield from _structs(each)


def _words(hint: Any) -> Iterator[str]:
    for each in get_args(hint):
        if get_origin(hint) is Literal:
            yield str(each)
        else:
            yield from _words(each)
