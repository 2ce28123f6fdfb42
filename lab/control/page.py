"""Serves the web page of the control port: the files in ``page/``. Each file is read when a browser requests it."""

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
    # The page loads everything from here, and no other site may show it in a frame.
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'",
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def serve(application: web.Application, check: Callable[[web.Request], object]) -> None:
    """Add the routes ``/`` and ``/page/NAME``. ``check`` raises an error if the request is not allowed."""

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
    """Names of the files in ``FOLDER``. No other path can be requested, however it is spelt."""
    return {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
