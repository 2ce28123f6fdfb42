"""Path patterns: paths that differ only in ids have one pattern, and so are one kind of request."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

ID: Final = "{}"
_VERSION: Final = re.compile(r"[vV]\d+(\.\d+)*|\d+(\.\d+)+")
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_HEX: Final = re.compile(r"(?=.*\d)[0-9a-f]{8,}", re.IGNORECASE)
_RANDOM: Final = re.compile(r"(?=(.*\d){3})[\w~.=-]{16,}")
_PREFIXED: Final = re.compile(r"[A-Za-z]+_(?=(.*\d){2})[A-Za-z0-9]{8,}")
_NUMBERED: Final = re.compile(r".*[-_.:]\d+")
_WANTED: Final = re.compile(r"\{\w*\}")


def is_random(text: str) -> bool:
    """Whether the text looks generated: a UUID, a hexadecimal or a long random id.

    >>> is_random("6f9619ff-8b86-d011-b42d-00cf4fc964ff"), is_random("pay_1MowQ8aB"), is_random("order-17")
    (True, True, False)
    """
    return any(each.fullmatch(text) for each in (_UUID, _HEX, _RANDOM, _PREFIXED)) and not text.isdecimal()


def _is_id(segment: str) -> bool:
    text = unquote(segment)
    if text.isdecimal() or is_random(text):
        return True
    if _VERSION.fullmatch(text):
        return False
    digits, letters = sum(map(str.isdecimal, text)), sum(map(str.isalpha, text))
    return bool(_NUMBERED.fullmatch(text)) or digits >= letters > 0


def pattern(target: str) -> str:
    """The path of a request target without its query, with ``{}`` for each segment that is an id.

    >>> pattern("/v1/orders/17/lines/k-3?dry=1"), pattern("/v1/oauth2/token"), pattern("*")
    ('/v1/orders/{}/lines/{}', '/v1/oauth2/token', '*')
    """
    path = target.partition("?")[0]
    return "/".join(ID if _is_id(each) else each for each in path.split("/"))


def matches(wanted: str, path: str) -> bool:
    """Whether the path has the form ``wanted``, in which ``{}`` or ``{name}`` matches one segment.

    >>> matches("/v1/orders/{id}", "/v1/orders/17"), matches("/v1/orders/{}", "/v1/orders/17/lines")
    (True, False)
    """
    ours, theirs = wanted.split("/"), path.split("/")
    return len(ours) == len(theirs) and all(
        bool(each) if _WANTED.fullmatch(mine) else mine == each
        for mine, each in zip(ours, theirs, strict=True)
    )


def ids(wanted: str, path: str) -> list[str]:
    """The segments of the path that ``{}`` matches in ``wanted``."""
    pairs = zip(wanted.split("/"), path.split("/"), strict=True)
    return [each for mine, each in pairs if _WANTED.fullmatch(mine)]
