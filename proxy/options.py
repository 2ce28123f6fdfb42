"""The command line of the proxy, for both `python -m server.proxy` and `odradek proxy`."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final

import click

from broker.config import DEFAULT_HOST, DEFAULT_PORT, ConfigError
from broker.config.settings import ControlPort
from broker.config.sources import from_environment, strongest, unknown, without_services
from lab.control.access import (
    LOOK_TOKEN_VARIABLE,
    STAGE_TOKEN_VARIABLE,
    TLS_CERTIFICATE_VARIABLE,
    TLS_KEY_VARIABLE,
    TOKEN_VARIABLE,
)
from lab.control_options import (
    CONTROL_HOST_VARIABLE,
    CONTROL_PORT_VARIABLE,
    FAULTS_VARIABLE,
    PORT_MAX,
    control_port,
    port_of,
    rules_in,
)
from protocol.slotted import slotted

UPSTREAM_VARIABLE: Final = "ODRADEK_UPSTREAM"
ALLOWED_HOSTS_VARIABLE: Final = "ODRADEK_CONTROL_ALLOWED_HOSTS"
WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})

Address = tuple[str, int]


@slotted(frozen=True)
class ProxySettings:
    """All settings for the start of a proxy."""

    upstream: tuple[Address, ...]
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    advertised_host: str = DEFAULT_HOST
    tls: ssl.SSLContext | None = None
    control: ControlPort | None = None
    control_token: str = field(default="", repr=False)
    control_stage_token: str = field(default="", repr=False)
    control_look_token: str = field(default="", repr=False)
    control_allowed_hosts: tuple[str, ...] = ()
    control_tls_certificate: str = ""
    control_tls_key: str = ""
    faults: tuple[str, ...] = ()
    ends_with_stdin: bool = False
    log_format: str = "auto"
    log_level: str = "info"


def parse(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> ProxySettings:
    """The settings of a command line. Raises click.ClickException for an invalid one."""
    found: list[ProxySettings] = []
    command(found.append, environ).main(list(argv), prog_name="odradek proxy", standalone_mode=False)
    if not found:  # --help only prints
        raise click.exceptions.Exit(0)
    return found[0]


def command(run: Callable[[ProxySettings], None], environ: Mapping[str, str] | None = None) -> click.Command:
    """The click command that parses the options and calls `run` with the settings."""

    def callback(**options: Any) -> None:
        run(_settings(options, os.environ if environ is None else environ))

    return click.Command(
        "proxy",
        callback=callback,
        params=_options(),
        help=(
            "Run in front of a Kafka cluster and relay the requests of clients, until SIGTERM or SIGINT: each of its nodes "
            "gets a listener here. Fault rules, trace and the page work as with a broker of Odradek."
        ),
        epilog="docs/proxy.md describes what a proxy can see.",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )


def _options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--upstream"],
            metavar="HOST:PORT,...",
            help="Addresses of nodes of the cluster, as in bootstrap.servers; the proxy discovers the other nodes. The "
            f"variable {UPSTREAM_VARIABLE} sets it too.",
        ),
        click.Option(
            ["--host"], default=DEFAULT_HOST, show_default=True, help="Address to listen on for clients."
        ),
        click.Option(
            ["--port"],
            type=click.IntRange(0, PORT_MAX),
            default=DEFAULT_PORT,
            show_default=True,
            help="Port of the first node's listener; the others use the next ports, or free ones if those are taken. "
            "0 picks free ones.",
        ),
        click.Option(
            ["--advertised-host"],
            help="Host by which clients reach the proxy.  [default: --host, or localhost if that is every address]",
        ),
        *_tls_options(),
        click.Option(
            ["--control-port"],
            type=click.IntRange(0, PORT_MAX),
            help="Open a control port for faults, trace and the page; 0 picks a free one and prints it. "
            f"The variable {CONTROL_PORT_VARIABLE} sets it too.",
        ),
        click.Option(
            ["--control-host"],
            help=f"Address of the control port; any address but loopback requires {TOKEN_VARIABLE}.  "
            f"The variable {CONTROL_HOST_VARIABLE} sets it too.  [default: {DEFAULT_HOST}]",
        ),
        click.Option(
            ["--fault", "faults"],
            multiple=True,
            metavar="RULE",
            help=f"A fault rule that applies from the start on (docs/faults.md). {FAULTS_VARIABLE} does the same.",
        ),
        click.Option(
            ["--ends-with-stdin"],
            is_flag=True,
            help="Stop when standard input ends: the proxy never outlives the program that started it.",
        ),
        click.Option(
            ["--log-format"],
            type=click.Choice(["auto", "human", "json"]),
            default="auto",
            help="Format of the proxy's own log.  [default: auto]",
        ),
        click.Option(
            ["--log-level"],
            type=click.Choice(["debug", "info", "warning", "error"]),
            default="info",
            help="Lowest level that the proxy logs.  [default: info]",
        ),
    ]


def _tls_options() -> list[click.Parameter]:
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    return [
        click.Option(["--upstream-tls"], is_flag=True, help="Use TLS to the cluster."),
        click.Option(
            ["--upstream-ca-file"],
            type=file,
            help="CA certificates (PEM) to verify the cluster; implies --upstream-tls.  [default: the system's]",
        ),
        click.Option(
            ["--upstream-cert-file"],
            type=file,
            help="Client certificate (PEM) of the proxy for the cluster; implies --upstream-tls.",
        ),
        click.Option(
            ["--upstream-key-file"],
            type=file,
            help="Its key.  [default: in the file of the certificate]",
        ),
    ]


def _settings(options: Mapping[str, Any], environ: Mapping[str, str]) -> ProxySettings:
    environ = without_services(environ)
    upstream = options["upstream"] or environ.get(UPSTREAM_VARIABLE, "")
    if not upstream:
        raise click.UsageError("--upstream HOST:PORT: the address of a node of the cluster is missing.")
    _check_variables(environ)
    host = options["host"]
    allowed = environ.get(ALLOWED_HOSTS_VARIABLE, "")
    return ProxySettings(
        upstream=tuple(_address(each.strip()) for each in upstream.split(",") if each.strip()),
        host=host,
        port=options["port"],
        advertised_host=options["advertised_host"] or ("localhost" if host in WILDCARDS else host),
        tls=_tls(options),
        control=_control(options, environ),
        control_token=environ.get(TOKEN_VARIABLE, ""),
        control_stage_token=environ.get(STAGE_TOKEN_VARIABLE, ""),
        control_look_token=environ.get(LOOK_TOKEN_VARIABLE, ""),
        control_allowed_hosts=tuple(filter(None, (each.strip() for each in allowed.split(",")))),
        control_tls_certificate=environ.get(TLS_CERTIFICATE_VARIABLE, ""),
        control_tls_key=environ.get(TLS_KEY_VARIABLE, ""),
        faults=(*options["faults"], *rules_in(environ.get(FAULTS_VARIABLE, ""))),
        ends_with_stdin=options["ends_with_stdin"],
        log_format=options["log_format"],
        log_level=options["log_level"],
    )


def _check_variables(environ: Mapping[str, str]) -> None:
    """Reject misspelt variables of tokens, which would leave the control port open. Other unknown variables are ignored."""
    ours = {name: value for name, value in environ.items() if name.startswith("ODRADEK_")}
    try:
        unknown(strongest(from_environment(ours)))
    except ConfigError as error:
        raise click.UsageError(f"{error}.") from None


def _address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and 0 < int(port[:6]) <= PORT_MAX
    if not colon or not host or not is_port:
        raise click.UsageError(f"--upstream {text}: expected HOST:PORT.")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _tls(options: Mapping[str, Any]) -> ssl.SSLContext | None:
    ca_file, cert_file = options["upstream_ca_file"], options["upstream_cert_file"]
    key_file = options["upstream_key_file"]
    if key_file is not None and cert_file is None:
        raise click.UsageError("--upstream-key-file: a key needs its certificate, --upstream-cert-file.")
    if not (options["upstream_tls"] or ca_file or cert_file):
        return None
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:
        raise click.UsageError(f"--upstream-ca-file {ca_file}: {error}.") from None
    if cert_file is not None:
        try:
            # Without a password here, OpenSSL would ask on the terminal.
            context.load_cert_chain(cert_file, key_file, password="")
        except ssl.SSLError as error:
            raise click.UsageError(f"--upstream-cert-file {cert_file}: {error}.") from None
    return context


def _control(options: Mapping[str, Any], environ: Mapping[str, str]) -> ControlPort | None:
    host, port = options["control_host"], options["control_port"]
    if port is None:
        port = port_of(environ.get(CONTROL_PORT_VARIABLE, ""))
    if port is None:
        if host is not None:
            raise click.UsageError("--control-host: there is no control port without --control-port.")
        return None
    return control_port(
        host or environ.get(CONTROL_HOST_VARIABLE) or None,
        port,
        environ.get(TOKEN_VARIABLE, ""),
        (),
        stage_token=environ.get(STAGE_TOKEN_VARIABLE, ""),
        look_token=environ.get(LOOK_TOKEN_VARIABLE, ""),
    )
