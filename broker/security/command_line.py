"""The options `--tls`, `--tls-directory` and `--sasl`, and their translation to Kafka's settings."""

from __future__ import annotations

import atexit
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.config.authority_files import FOLDER
from broker.config.node_settings import settings_for_node
from broker.config.sasl_users import MECHANISMS, VARIABLE, given_users
from broker.config.security_presets import (
    TLS_DIRECTORY_OPTION,
    TLS_OPTION,
    Asked,
    Preset,
    endpoints_of,
    expand,
)
from broker.config.sources import (
    Setting,
    for_node,
    from_command_line,
    given_settings,
    strongest,
)

if TYPE_CHECKING:
    import click

_EVERYWHERE: Final = ("", "0.0.0.0", "::")
_ZONE: Final = "%"


def options() -> list[click.Parameter]:
    """Return `--tls`, `--tls-directory` and `--sasl` as parameters for click."""
    import click

    return [
        click.Option(
            [TLS_OPTION],
            is_flag=True,
            help="Serve by TLS, with a certificate of an authority that is made for this broker. The start prints where the "
            "authority's certificate is, as PEM, JKS and PKCS12.",
        ),
        click.Option(
            [TLS_DIRECTORY_OPTION],
            type=click.Path(file_okay=False, path_type=Path),
            metavar="DIR",
            help=f"Directory of the authority, which is reused if it exists.  [default: {FOLDER}/ in the data "
            "directory]",
        ),
        click.Option(
            ["--sasl"],
            multiple=True,
            metavar="USER:PASSWORD[:MECHANISM]",
            help=f"A user as whom clients can log in by SASL; repeatable. MECHANISM: one of {', '.join(MECHANISMS)}; "
            "without it, all of them. Other users of this machine can read a command line: set the variable "
            f"{VARIABLE} instead, with users separated by line breaks or semicolons.",
        ),
    ]


def protocol_of(options: Mapping[str, object], environ: Mapping[str, str]) -> str:
    """Security protocol that the options select for listeners whose address has no protocol."""
    return _asked(options, environ, Path()).protocol


def secure(
    options: Mapping[str, object],
    environ: Mapping[str, str],
    overrides: Mapping[str, str],
    *,
    properties_file: Path | None,
    nodes: int,
    defaults: Mapping[str, str],
) -> tuple[dict[str, str], Preset]:
    """Translate `--tls` and `--sasl` to settings, and create the certificate authority of `--tls` if needed.

    Returns (``overrides`` with these settings added, the `Preset` with them). Raises `ConfigError` if an option
    conflicts with a setting.
    """
    given = given_settings(properties_file, environ, overrides, defaults)
    settings = strongest(for_node(given, 1))
    asked = _asked(options, environ, _folder(options, settings))
    preset = expand(asked, settings, nodes=nodes, broker_password=secrets.token_urlsafe())
    overrides = {**overrides, **preset.settings}
    if preset.authority is not None:
        from broker.clock import SystemClock
        from broker.security.kept_authority import keep_authority

        given += from_command_line(preset.settings)
        now = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)
        keep_authority(preset.authority, dict.fromkeys(_hosts(given, nodes)), now)
    return overrides, preset


def _asked(options: Mapping[str, object], environ: Mapping[str, str], folder: Path) -> Asked:
    sasl = options["sasl"]
    texts = map(str, sasl) if isinstance(sasl, tuple) else ()
    return Asked(
        tls=folder if options["tls"] or options["tls_directory"] else None,
        tls_directory_given=options["tls_directory"] is not None,
        users=given_users(texts, environ.get(VARIABLE, "")),
    )


def _folder(options: Mapping[str, object], settings: Mapping[str, Setting]) -> Path:
    """Directory of the certificate authority: `--tls-directory`, else a folder in the first data directory.

    Without a data directory it is a temporary directory, deleted when the process exits. Without `--tls`, the path
    is empty.
    """
    if options["tls_directory"] is not None:
        return Path(str(options["tls_directory"])).absolute()
    if not options["tls"]:
        return Path()
    for name in ("log.dirs", "log.dir"):
        if name in settings and (data_dir := settings[name].raw.split(",")[0].strip()):
            return (Path(data_dir) / FOLDER).absolute()
    folder = tempfile.mkdtemp(prefix="odradek-tls-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _hosts(given: list[Setting], nodes: int) -> Iterator[str]:
    """The host names by which clients reach the nodes."""
    for number in range(1, nodes + 1):
        settings = settings_for_node(strongest(for_node(given, number)), number - 1)
        for name in ("listeners", "advertised.listeners"):
            for endpoint in endpoints_of(settings, name):
                if endpoint.host not in _EVERYWHERE:
                    yield endpoint.host.partition(_ZONE)[0]
