"""Rules as the control port reads them."""

from __future__ import annotations

import json
from typing import Any, Final

from lab.control.errors import HttpError
from lab.control.operations import decode_body, discover
from lab.control.routes.faults import _rule
from lab.faults import Rule

ADD: Final = discover()["POST", "/v1/faults"]


def rule_from_json(form: object) -> Rule:
    """From the body of a call, or what stands under ``rule`` in it; ``ValueError`` with the sentence of the response."""
    body: Any = decode_body(ADD, json.dumps(form if isinstance(form, dict) else {"rule": form}).encode())
    try:
        return _rule(body)
    except HttpError as error:
        raise ValueError(error.sentence) from None
