"""Parser for fault rules in JSON."""

from __future__ import annotations

import json
from typing import Any, Final

from lab.control.errors import HttpError
from lab.control.operations import decode_body, discover
from lab.control.routes.faults import _rule
from lab.faults import Rule

ADD: Final = discover()["POST", "/v1/faults"]


def rule_from_json(form: object) -> Rule:
    """Parse the JSON body of `POST /v1/faults`, or the ``rule`` in it. Raises ``ValueError`` with the error message of the
    response."""
    body: Any = decode_body(ADD, json.dumps(form if isinstance(form, dict) else {"rule": form}).encode())
    try:
        return _rule(body)
    except HttpError as error:
        raise ValueError(error.sentence) from None
