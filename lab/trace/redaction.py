"""Removes secrets from frames before the trace stores them. Pure.

frame = redacted(36, 2, frame, is_request=True)

The result has the same length and the same fields: secret bytes become zeros, secret text becomes asterisks. So neither
the trace nor anything made from the trace, such as a capture file, can show a password, a token, or a proof of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from broker.metadata.sensitive_configs import is_sensitive
from protocol.codec import MalformedRequest, UnknownVersion, client_codec, request_codec
from protocol.frame import parse_request_header, response_body_offset
from protocol.versions import WireField

SECRETS: Final = frozenset({"auth_bytes", "hmac", "salt", "salted_password"})
"""Fields of the wire format that are secrets."""

ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 33, 44
_WITH_CONFIGS: Final = frozenset({ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS})
WITH_SECRETS: Final = frozenset({*_WITH_CONFIGS, 36, 38, 39, 40, 41, 51})
"""API keys of the APIs with secrets: SaslAuthenticate, delegation tokens, AlterUserScramCredentials."""


def redacted(key: int, version: int, frame: bytes, *, is_request: bool) -> bytes:
    """The frame without secrets: ``frame`` itself if it has none.

    If the frame cannot be decoded, only its header remains, and zeros replace the rest.
    """
    if key not in WITH_SECRETS:
        return frame
    offset = 0
    try:
        if is_request:
            offset = parse_request_header(frame).body_offset
            message = request_codec(key, version).decode(frame, offset)
        else:
            offset = response_body_offset(key, version, frame)
            message = client_codec(key, version).decode(frame, offset)
        has_configs = is_request and key in _WITH_CONFIGS
        if not (_redact_configs(message) if has_configs else _redact(message, message.__wire__)):
            return frame
        body = b"".join(_encoded(key, version, message, is_request=is_request))
    except (MalformedRequest, UnknownVersion):
        body = b""
    # Unknown tagged fields are lost, so the message is shorter. The padding behind it is never read.
    return (frame[:offset] + body).ljust(len(frame), b"\0")


def _encoded(key: int, version: int, message: Any, *, is_request: bool) -> list[Any]:
    return (client_codec if is_request else request_codec)(key, version).encode(message)


def _redact(message: Any, wire: Sequence[WireField]) -> bool:
    """Replace secrets; returns whether there was one. ``wire`` is the field table of the version."""
    found = False
    for field in wire:
        value = getattr(message, field.name)
        if field.kind == "struct":
            for each in (value or ()) if field.is_array else (value,):
                found = (each is not None and _redact(each, field.nested.__wire__)) or found
        elif field.name in SECRETS and value:
            setattr(message, field.name, bytes(len(value)))
            found = True
    return found


def _redact_configs(request: Any) -> bool:
    """Redact the values of sensitive settings, as Kafka's request log does (``RequestChannel.loggableRequest``)."""
    found = False
    for resource in request.resources:
        for config in resource.configs:
            if config.value and is_sensitive(resource.resource_type, config.name):
                config.value = "*" * len(config.value.encode())
                found = True
    return found
