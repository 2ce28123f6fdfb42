"""``ssl.principal.mapping.rules``: maps the distinguished name of a certificate to the name of the principal (KIP-371).

    rules = parse_rules("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,DEFAULT")
    map_name(rules, "CN=kafka,OU=ServiceUsers,O=Unknown")  # "kafka"

Pure. Rules and error messages are those of ``SslPrincipalMapper``.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Final

from broker.security.principals import ANONYMOUS, user
from broker.security.tls.der import NotDer
from broker.security.tls.distinguished_name import subject_name
from protocol.slotted import slotted
from storage.config_def import ConfigError

SETTING: Final = "ssl.principal.mapping.rules"
_DEFAULT: Final = "DEFAULT"
_WHITESPACE: Final = "".join(map(chr, range(0x21)))  # what Java's String.trim removes
# Pattern and replacement end at a slash that is not escaped by a backslash.
_PART: Final = r"(?:\\.|[^\\/])*"
_RULE: Final = (
    rf"(?P<default>DEFAULT)|RULE:(?P<pattern>{_PART})/(?P<replacement>{_PART})/(?P<case>[LU]?).*?|.*?"
)
_SPLITTER: Final = re.compile(rf"\s*(?P<rule>{_RULE})\s*(?:,\s*|$)", re.ASCII)
_PARSER: Final = re.compile(_RULE, re.ASCII)
_JAVA_ONLY: Final = re.compile(r"\\Q(.*?)(?:\\E|$)|\\.|(\(\?<)(?=[A-Za-z])", re.DOTALL)
_REFERENCE: Final = re.compile(r"\\(.)|\$(?:(\d+)|\{([A-Za-z][A-Za-z0-9]*)\})|([\\$])", re.DOTALL | re.ASCII)


class MappingFailed(Exception):
    """No rule matches the certificate's name, so the client is not authenticated."""


@slotted(frozen=True)
class Rule:
    """``RULE:pattern/replacement/[LU]``; without a pattern the rule is ``DEFAULT``."""

    pattern: re.Pattern[str] | None = None
    source: str = ""
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """The principal's name; None if the rule does not match."""
        if self.pattern is None:
            return name
        if not self.pattern.fullmatch(name):
            return None
        try:
            mapped = self.pattern.sub(self._expand, name)
        except (IndexError, ValueError) as error:
            raise MappingFailed(f"Rule {self} cannot be applied to {name}: {error}") from None
        if self.case:
            return mapped.lower() if self.case == "L" else mapped.upper()
        return mapped

    def _expand(self, match: re.Match[str]) -> str:
        return _REFERENCE.sub(lambda reference: _referred(reference, match), self.replacement)

    def __str__(self) -> str:
        if self.pattern is None:
            return _DEFAULT
        return f"RULE:{self.source}/{self.replacement}" + (f"/{self.case}" if self.case else "")


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Parse the rules. Raises `ConfigError` if they are invalid."""
    found = (match["rule"] for match in _SPLITTER.finditer(text.strip(_WHITESPACE)))
    return tuple(rule for each in found if (rule := _parse_rule(each)) is not None)


def _parse_rule(text: str) -> Rule | None:
    match = _PARSER.match(text)
    assert match is not None  # it may match nothing
    if match.end() != len(text):
        raise ConfigError.of(
            SETTING, text, f"Invalid rule: `{text}`, unmatched substring: `{text[match.end() :]}`"
        )
    if match["default"]:
        return Rule()
    if match["pattern"] is None:
        return None
    return Rule(_compile(match["pattern"]), match["pattern"], match["replacement"], match["case"])


def _compile(pattern: str) -> re.Pattern[str]:
    """Compile a Java pattern. Constructs that Python interprets differently cause a warning in `re`, and are refused."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile(_JAVA_ONLY.sub(_as_python, pattern), re.ASCII)
    except (re.error, RecursionError, OverflowError, Warning) as error:
        raise ConfigError.of(SETTING, pattern, f"the pattern of a rule cannot be read: {error}") from None


def _as_python(match: re.Match[str]) -> str:
    """Translate a quotation or a named group from Java to Python. Other escapes are the same in both."""
    quoted, group = match.groups()
    if quoted is not None:
        return re.escape(quoted)
    return "(?P<" if group else match[0]


def map_name(rules: Sequence[Rule], name: str) -> str:
    """Apply the first rule that matches. Raises `MappingFailed` if none does."""
    for rule in rules:
        mapped = rule.apply(name)
        if mapped is not None:
            return mapped
    raise MappingFailed(f"No rules apply to {name}, rules [{', '.join(map(str, rules))}]")


def principal_of(certificate: bytes | None, rules: Sequence[Rule]) -> str:
    """The principal of a client on an SSL listener, by its certificate in DER: `User:CN=alice`."""
    if certificate is None:
        return ANONYMOUS
    try:
        name = subject_name(certificate)
    except NotDer as error:
        raise MappingFailed(f"The certificate cannot be read: {error}") from None
    return user(map_name(rules, name))


def _referred(reference: re.Match[str], match: re.Match[str]) -> str:
    """Text for a reference in the replacement (``Matcher.appendReplacement``)."""
    escaped, number, name, alone = reference.groups()
    if escaped is not None:
        return escaped
    if alone is not None:
        raise ValueError("Illegal group reference" if alone == "$" else "character to be escaped is missing")
    if name is not None:
        return match[name] or ""
    return _group(number, match)


def _group(digits: str, match: re.Match[str]) -> str:
    """Text for the reference `$` + ``digits``.

    The longest prefix of the digits that is the number of a group is the reference, and the other digits are
    literal: with one group, `$12` is group 1 followed by "2". If no prefix is such a number, the text is `$` and
    the digits. Raises IndexError if the pattern has no groups.
    """
    groups = match.re.groups
    used = len(digits)
    while used > 1 and int(digits[:used]) > groups:
        used -= 1
    if int(digits[:used]) > groups:
        if not groups:
            raise IndexError(f"No group {digits[:used]}")
        return f"${digits}"
    return (match[int(digits[:used])] or "") + digits[used:]
