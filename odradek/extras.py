"""The command that installs an extra of this package, for error messages."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, distribution
from urllib.parse import unquote, urlparse


def install_command(extra: str) -> str:
    """The install command, such as ``pip install 'odradek[demo]'``.

    If this package came from a folder, wheel or URL (PEP 610), the command installs from there.
    """
    return f"pip install '{_origin(extra)}'"


def _origin(extra: str) -> str:
    named = f"odradek[{extra}]"
    try:
        text = distribution("odradek").read_text("direct_url.json")
        origin = json.loads(text or "{}")
    except (PackageNotFoundError, ValueError):
        return named
    url = str(origin.get("url", ""))
    if url.startswith("file:"):
        return f"{unquote(urlparse(url).path)}[{extra}]"
    if "vcs_info" in origin:
        return f"{named} @ {origin['vcs_info'].get('vcs', 'git')}+{url}"
    return named
