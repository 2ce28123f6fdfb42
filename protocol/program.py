"""The field tables of messages in the format of the compiled core, and its decoders and encoders.

The core interprets a table that was created once for each version (``Program`` in ``protocol/c``). Python handles messages
with more elements than are read or written at once, in slices.
"""

from collections.abc import Callable
from typing import Any, Final

from .core import compiled
from .decode import Decoder, MalformedRequest, compile_decoder, uuid_of_bytes
from .encode import INLINE_BYTES_MAX, Encoder, compile_encoder
from .messages import Chunk
from .source import ELEMENTS_AT_ONCE, LongMessage
from .versions import WireField
from .wire_types import STRING_BYTES_MAX, TAGS_MAX

# The order must be the same as in protocol/c/core.h.
KINDS: Final = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float64", "uuid"),
    *("string", "bytes", "records", "struct", "tagged struct"),
)

if compiled is not None:
    compiled.set_up_messages(
        malformed_request=MalformedRequest,
        long_message=LongMessage,
        uuid_of_bytes=uuid_of_bytes,
        string_bytes_max=STRING_BYTES_MAX,
        elements_at_once=ELEMENTS_AT_ONCE,
        inline_bytes_max=INLINE_BYTES_MAX,
        tags_max=TAGS_MAX,
    )


def decoder_of(message_class: Any) -> Decoder:
    """The compiled core's decoder for a class of ``at_version``; the Python decoder if the core was not built."""
    if compiled is None:
        return compile_decoder(message_class)
    return _program(message_class, _refuse).decode  # type: ignore[no-any-return]


def encoder_of(message_class: Any) -> Encoder:
    """The compiled core's encoder for a class of ``at_version``; the Python encoder if the core was not built.

    For values that the core cannot encode, the core calls the Python encoder.
    """
    if compiled is None:
        return compile_encoder(message_class)
    return _program(message_class, _Late(message_class)).encode  # type: ignore[no-any-return]


class _Late:
    """The Python encoder as a fallback of the compiled core. Generated at the first call, since it is rarely needed."""

    __slots__ = ("_encoder", "_message_class")

    def __init__(self, message_class: Any) -> None:
        self._message_class = message_class
        self._encoder: Encoder | None = None

    def __call__(self, message: Any) -> list[Chunk]:
        if self._encoder is None:
            self._encoder = compile_encoder(self._message_class)
        return self._encoder(message)


def _refuse(message: Any) -> list[Chunk]:
    raise TypeError("this codec only decodes messages and cannot encode them")


def _program(message_class: Any, fallback: Callable[[Any], list[Chunk]]) -> Any:
    assert compiled is not None
    return compiled.Program(
        _table(message_class), flexible=message_class.__flexible__, strict=False, fallback=fallback
    )


def _table(message_class: Any) -> tuple[Any, ...]:
    fields = tuple(_entry(field) for field in message_class.__wire__)
    return (message_class, message_class.__union__, fields)


def _entry(field: WireField) -> tuple[Any, ...]:
    tag = -1 if field.tag is None else field.tag
    nested = None if field.nested is None else _table(field.nested)
    return (field.name, KINDS.index(field.kind), field.is_array, field.nullable, tag, field.default, nested)
