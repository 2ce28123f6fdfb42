"""The files of the control page: which ones are served, to whom, and their size."""

from __future__ import annotations

import pytest

from lab.control.page import FOLDER, TYPES
from tests.lab.control.conftest import Caller, OpenControl

BYTES_MAX = 150_000
FILES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file())


async def test_the_page_is_there_without_a_token(open_control: OpenControl) -> None:
    caller = await open_control(token="secret")
    status, body = await caller("GET", "/", headers={})
    assert status == 200
    assert body.startswith("<!doctype html>")


@pytest.mark.parametrize("name", FILES)
async def test_each_file_is_served_as_what_it_is(caller: Caller, name: str) -> None:
    async with caller.session.get(f"{caller.url}/page/{name}") as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == TYPES[name[name.rindex(".") :]]
        assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
        assert await answer.read() == (FOLDER / name).read_bytes()
        tag = answer.headers["ETag"]
    async with caller.session.get(f"{caller.url}/page/{name}", headers={"If-None-Match": tag}) as answer:
        assert answer.status == 304


@pytest.mark.parametrize(
    "path", ["/page/../page.py", "/page/%2e%2e/page.py", "/page/none.js", "/page//etc/passwd"]
)
async def test_nothing_else_is_served(caller: Caller, path: str) -> None:
    from yarl import URL

    async with caller.session.get(URL(caller.url + path, encoded=True)) as answer:
        assert answer.status == 404


async def test_another_site_cannot_have_it(caller: Caller) -> None:
    status, _ = await caller("GET", "/", headers={"Host": "evil.example"})
    assert status == 403


def test_it_is_small_and_asks_no_other_host_for_anything() -> None:
    texts = [(FOLDER / name).read_text() for name in FILES]
    assert sum(len(text.encode()) for text in texts) < BYTES_MAX
    for name, text in zip(FILES, texts, strict=True):
        assert "https://" not in text.replace("https://kafka.apache.org", ""), name
        assert "//cdn" not in text, name
