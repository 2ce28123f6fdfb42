"""The page: files as they lie in ``page/``, for browsers. They are read when a browser asks for them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from aiohttp import web

FOLDER: Final = Path(__file__).parent / "page"
INDEX: Final = "index.html"
TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
HEADERS: Final = {
    # All that it loads comes from here, and no other page may show it in a frame.
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'",
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def serve(application: web.Application, check: Callable[[web.Request], object]) -> None:
    """Answer ``/`` and ``/page/NAME``; ``check`` raises for a caller that may not ask."""

    async def answer(request: web.Request) -> web.StreamResponse:
        check(request)
        name = request.match_info.get("name", INDEX)
        path = FOLDER / name
        if path.suffix not in TYPES or name not in await asyncio.to_thread(_names):
            raise web.HTTPNotFound
        body = await asyncio.to_thread(path.read_bytes)
        tag = hashlib.sha256(body).hexdigest()[:32]
        if request.headers.get("If-None-Match") == f'"{tag}"':
            return web.Response(status=304, headers={**HEADERS, "ETag": f'"{tag}"'})
        return web.Response(
            body=body,
            content_type=TYPES[path.suffix],
            charset="utf-8",
            headers={**HEADERS, "ETag": f'"{tag}"'},
        )

    application.router.add_get("/", answer)
    application.router.add_get("/page/{name:.+}", answer)


def _names() -> set[str]:
    """Only what lies there may be asked for, however a path is spelt."""
    return {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
