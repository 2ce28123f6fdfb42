"""The page: files as they lie in ``page/``, for browsers. They are read when a browser asks for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from aiohttp import web

FOLDER: Final = Path(__file__).parent / "page"
INDEX: Final = "index.html"
TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
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
        if path.suffix not in TYPES or name not in _names():
            raise web.HTTPNotFound
        return web.FileResponse(path, headers={**HEADERS, "Content-Type": TYPES[path.suffix]})

    application.router.add_get("/", answer)
    application.router.add_get("/page/{name:.+}", answer)


@cache
def _names() -> set[str]:
    """Only what lies there may be asked for, however a path is spelt."""
    return {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
