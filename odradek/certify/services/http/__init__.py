"""An HTTP/1.1 service behind a proxy: each request is one moment."""

from __future__ import annotations

import asyncio

from odradek.certify.services.http.origin import Origin
from odradek.certify.services.http.proxy import HttpService
from odradek.certify.services.specs import StageSpec


def service(spec: StageSpec, loop: asyncio.AbstractEventLoop) -> HttpService:
    """Create the service of ``--stage http=URL``. Raises ``ValueError`` for another address."""
    try:
        origin = Origin.parse(spec.address)
    except ValueError as error:
        raise ValueError(f"--stage {spec.name}={spec.address}: {error}") from None
    return HttpService(spec.name, origin, loop, has_reset=spec.reset is not None)
