"""Login modules and their options, from ``sasl.jaas.config`` or from the JAAS file that ``KAFKA_OPTS`` names.

    (module,) = parse_config('org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b";')
    module.options["user_a"]  # "b"

The rules are those of Kafka's ``JaasConfig`` and ``JaasContext``, and for files those of the JDK's ``ConfigFile``. Where
their error messages repeat text that may be a part of a password, the messages here have `[hidden]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from broker.security.listener_configs import ListenerConfigs
from broker.security.sasl.stream_tokenizer import END, QUOTED, WORD, Token, tokens
from protocol.named_tuple import NamedTuple
from storage.config_def import ConfigError

PLAIN_LOGIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_LOGIN_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_LOGIN_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

SERVER: Final = "KafkaServer"
LOGIN_CONFIG: Final = "java.security.auth.login.config"
"""The JVM system property with the path of the JAAS file."""
HIDDEN: Final = "[hidden]"
CONTROL_FLAGS: Final = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
_OPTIONS: Final = ("username", "password", "tokenauth", "serviceName")
_PROPERTY: Final = re.compile(r"\$\{([^}]*)\}")


class LoginModule(NamedTuple):
    name: str
    control_flag: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name} {self.control_flag}, {', '.join(self.options)})"


class JaasFile(NamedTuple):
    path: str
    contexts: Mapping[str, tuple[LoginModule, ...]]


class Jvm(NamedTuple):
    """The parts of ``KAFKA_OPTS`` that affect SASL: the system properties, and the JAAS file, or None."""

    properties: Mapping[str, str]
    jaas_file: JaasFile | None


class JaasContext(NamedTuple):
    """The login modules for one mechanism of a listener."""

    name: str
    modules: tuple[LoginModule, ...]

    def option(self, key: str, module: str) -> str | None:
        """Return the option ``key`` of the login module ``module``, or None (``JaasContext.configEntryOption``).

        If the module is listed several times, the first entry with the option counts.
        """
        return next(
            (each.options[key] for each in self.modules if each.name == module and key in each.options), None
        )


def server_context(configs: ListenerConfigs, mechanism: str, jvm: Jvm) -> JaasContext:
    """The JAAS context of a mechanism on a listener (``JaasContext.loadServerContext``): from ``sasl.jaas.config`` of the
    mechanism, else from the file's section for the listener, else from the file's section for the broker.
    """
    own: str | None = configs.of_mechanism("sasl.jaas.config", mechanism)
    if own is not None:
        modules = parse_config(own)
        if len(modules) != 1:
            raise ConfigError(
                f"JAAS config property contains {len(modules)} login modules, should be 1 module"
            )
        return JaasContext(SERVER, modules)
    of_listener = f"{configs.listener.lower()}.{SERVER}"
    contexts = {} if jvm.jaas_file is None else jvm.jaas_file.contexts
    for name in (of_listener, SERVER):
        if name in contexts:
            return JaasContext(name, contexts[name])
    path = "not set" if jvm.jaas_file is None else jvm.jaas_file.path
    raise ConfigError(
        f"Could not find a '{SERVER}' or '{of_listener}' entry in the JAAS configuration. "
        f"System property '{LOGIN_CONFIG}' is {path}"
    )


def read_jvm(environ: Mapping[str, str]) -> Jvm:
    """Read ``KAFKA_OPTS``, and the JAAS file that it names."""
    properties = jvm_properties(environ.get("KAFKA_OPTS", ""))
    path = properties.get(LOGIN_CONFIG, "").lstrip("=").removeprefix("file:")
    if not path:
        return Jvm(properties, None)
    try:
        text = Path(path).read_text("utf-8", "replace")
    except OSError as error:
        raise ConfigError(f"{LOGIN_CONFIG}: {path} ({error.strerror})") from None
    try:
        return Jvm(properties, JaasFile(path, parse_file(text, properties)))
    except ConfigError as error:
        raise ConfigError(f"{LOGIN_CONFIG}: {path}: {error}") from None


def jvm_properties(options: str) -> dict[str, str]:
    """Values of `-Dname=value` in ``KAFKA_OPTS``; the last one wins. Quotes are part of a value, as for Kafka's scripts.

    >>> jvm_properties("-Xmx1g -Da=1 -Db -Da=2=3")
    {'a': '2=3', 'b': ''}
    """
    given = (word[2:].partition("=") for word in options.split() if word.startswith("-D"))
    return {name: value for name, _, value in given}


# sasl.jaas.config


def parse_config(text: str) -> tuple[LoginModule, ...]:
    """Parse all modules of a ``sasl.jaas.config``. Raises ConfigError with Kafka's messages."""
    cut = tokens(text, word_characters="-_$")
    modules: list[LoginModule] = []
    while (token := next(cut)).kind != END:
        modules.append(_module(token, cut, is_first=not modules))
    if not modules:
        raise ConfigError("Login module not specified in JAAS config")
    return tuple(modules)


def _module(first: Token, cut: Iterator[Token], is_first: bool) -> LoginModule:
    token = next(cut)
    if token.kind == END:
        raise ConfigError("Login module control flag not specified in JAAS config")
    flag = _control_flag(token.text, is_first)
    options: dict[str, str] = {}
    while (token := next(cut)).kind not in (END, ";"):
        key = token.text
        if next(cut).kind != "=" or (value := next(cut).text) is None:
            raise ConfigError(f"Value not specified for key '{_shown_key(key)}' in JAAS config")
        if key is not None:
            options[key] = value
    if token.kind == END:
        raise ConfigError("JAAS config entry not terminated by semi-colon")
    if not first.text:
        raise ConfigError("Login module not specified in JAAS config")
    return LoginModule(first.text, flag, options)


def _control_flag(flag: str | None, is_first: bool) -> str:
    if flag is None:
        raise ConfigError("Login module control flag is not available in the JAAS config")
    if flag.upper() not in CONTROL_FLAGS:
        # The text may be a part of a password if it follows an option or was quoted.
        shown = flag if is_first and re.fullmatch(r"[A-Za-z]{1,20}", flag) else HIDDEN
        raise ConfigError(f"Invalid login module control flag '{shown}' in JAAS config")
    return flag.upper()


def _shown_key(key: str | None) -> str:
    if key is None:
        return "null"
    return key if key in _OPTIONS else HIDDEN


# The file


def parse_file(text: str, properties: Mapping[str, str]) -> dict[str, tuple[LoginModule, ...]]:
    """Parse the modules of each section as the JDK's ``ConfigFile`` does: `KafkaServer { Module required key="value"; };`.

    `${name}` in a value is replaced by the JVM system property.
    """
    return _FileParser(text, properties).contexts()


class _FileParser:
    def __init__(self, text: str, properties: Mapping[str, str]) -> None:
        self._cut = tokens(text, word_characters="-_$*")
        self._properties = properties
        self._next = next(self._cut)

    def contexts(self) -> dict[str, tuple[LoginModule, ...]]:
        found: dict[str, tuple[LoginModule, ...]] = {}
        while self._next.kind != END:
            name = self._take().text or "null"
            self._expect("{")
            parsed: list[LoginModule] = []
            while self._next.kind != "}":
                parsed.append(self._module())
            self._expect("}")
            self._expect(";")
            if name in found:
                raise ConfigError(f"Configuration Error: Can not specify multiple entries for {name}")
            found[name] = tuple(parsed)
        # Java ignores a section without a module.
        return {name: modules for name, modules in found.items() if modules}

    def _module(self) -> LoginModule:
        name = self._text("module class name")
        line, flag = self._next.line, self._text("controlFlag").upper()
        if flag not in CONTROL_FLAGS:
            raise ConfigError(f"Configuration Error: Line {line}: Invalid control flag, {HIDDEN}")
        options: dict[str, str] = {}
        while self._next.kind != ";":
            key = self._text("option key")
            self._expect("=")
            options[key] = self._expanded(self._text("option value"))
        self._expect(";")
        return LoginModule(name, flag, options)

    def _take(self) -> Token:
        token = self._next
        if token.kind != END:
            self._next = next(self._cut)
        return token

    def _text(self, expected: str) -> str:
        token = self._take()
        if token.kind not in (WORD, QUOTED):
            raise self._unexpected(token, expected)
        return token.text or ""

    def _expect(self, kind: str) -> None:
        token = self._take()
        if token.kind != kind:
            raise self._unexpected(token, kind)

    def _unexpected(self, found: Token, expected: str) -> ConfigError:
        if found.kind == END:
            return ConfigError(f"Configuration Error: expected [{expected}], read [end of file]")
        return ConfigError(f"Configuration Error: Line {found.line}: expected [{expected}]")

    def _expanded(self, value: str) -> str:
        def property_of(match: re.Match[str]) -> str:
            name = match[1]
            if name == "/":
                return "/"
            if name not in self._properties:
                raise ConfigError(f"Unable to expand property {name} in the JAAS configuration")
            return self._properties[name]

        return _PROPERTY.sub(property_of, value)


def shown_name(module: str) -> str:
    """Name of a module for messages. A text that cannot be a class name is hidden, since it may be a part of a password."""
    return module if re.fullmatch(r"[\w$]+(\.[\w$]+)+", module) else HIDDEN
