"""Write the reports of a certificate to a directory: JSON, HTML, JUnit XML, SARIF, a badge."""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from odradek.certify.certificate import Certificate
from odradek.certify.report.badge import badge
from odradek.certify.report.certificate import as_dict
from odradek.certify.report.junit import junit
from odradek.certify.report.notices import of_certificate
from odradek.certify.report.page import page
from odradek.certify.report.sarif import sarif
from odradek.errors import OdradekError

JSON: Final = "certificate.json"
LOCK: Final = ".lock"


def write(
    certificate: Certificate,
    directory: Path,
    options: Mapping[str, Any] | None = None,
    file: str | None = None,
) -> None:
    """Write the reports to the directory.

    ``options`` are the command's options, stored for the function `options`; ``file`` is the certify.toml if any.
    """
    directory.mkdir(parents=True, exist_ok=True)
    shown = as_dict(certificate) | {"options": dict(options or {})}
    files = {
        JSON: json.dumps(shown, indent=2, ensure_ascii=False) + "\n",
        "certificate.html": page(certificate),
        "badge.svg": badge(certificate),
        "junit.xml": junit(certificate),
        "certificate.sarif": sarif(of_certificate(certificate), file),
    }
    for name, text in files.items():
        (directory / f".{name}").write_text(text, encoding="utf-8")
        (directory / f".{name}").replace(directory / name)  # atomic: a reader sees the old or the new file


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Context manager: lock the directory, so that a second command cannot overwrite the results of the first."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / LOCK).open("w")
    except OSError as error:
        raise OdradekError(f"--report {directory}: {error}") from None
    with lock as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OdradekError(
                f"another odradek certify writes to {directory}/: wait for its end, or use another --report DIRECTORY"
            ) from None
        yield


def options(directory: Path) -> dict[str, Any]:
    """The options with which the certificate in this directory was made. Raises ``ValueError`` without a certificate."""
    return dict(_read(directory)["options"])


def _read(directory: Path) -> dict[str, Any]:
    path = directory / JSON
    if not path.is_file():
        raise ValueError(
            f"there is no certificate in {directory}/: run odradek certify first, or give its --report DIRECTORY"
        )
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def plan(directory: Path, plan_id: str) -> str:
    """The plan with this id in the certificate of this directory, as JSON. Raises ``ValueError`` for an unknown id."""
    found = _read(directory)
    failures = [*found["failures"], *found.get("unfinished", ())]
    for failure in failures:
        if failure["plan_id"] == plan_id:
            return json.dumps(failure["plan"])
    known = ", ".join(each["plan_id"] for each in failures) or "none"
    raise ValueError(f"unknown plan: {plan_id} (in {directory / JSON}: {known})")
