"""Principals: the authenticated identity of a client, as `Type:name` (``KafkaPrincipal``)."""

from __future__ import annotations

from typing import Final

USER: Final = "User"
ANONYMOUS: Final = "User:ANONYMOUS"


def user(name: str) -> str:
    """Principal of the user with this name.

    >>> user("alice")
    'User:alice'
    """
    return f"{USER}:{name}"


def parse(text: str) -> tuple[str, str]:
    """Split `Type:name` into type and name, as ``SecurityUtils.parseKafkaPrincipal``. Raises ValueError for other texts.

    >>> parse("User:CN=a,O=b:c")
    ('User', 'CN=a,O=b:c')
    """
    kind, colon, name = text.partition(":")
    if not text:
        raise ValueError("expected a string in format principalType:principalName but got empty string")
    if not colon or not kind:
        raise ValueError(f"expected a string in format principalType:principalName but got {text}")
    return kind, name
