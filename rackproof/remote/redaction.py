"""Removes secrets from the output of nodes before it is written to disk, in recordings and in evidence. Pure.

Each rule matches a secret and replaces it with ``‹redacted›``. Nothing else changes: the number of lines stays, and
redaction is idempotent. Rules work on bytes, because output need not be text.

Random-looking values that are no secrets stay: hardware addresses, sha256, PCI addresses, serial numbers, UUIDs. A
secret is recognised by its name (``password=``), by an unambiguous format (a key of Ceph), or by the command that
reads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from rackproof.remote.command import CommandResult

MARK: Final = "‹redacted›"
_MARK: Final = MARK.encode()

_NAMES = (
    rb"(?:pass(?:word|wd|phrase)|secret|token|psk|credentials?|(?:mysql|user|root|admin|db|bmc|ipmi)_?pwd"
    rb"|(?:storage|jobcomp|user|root|admin|db|bind)_?pass"
    rb"|(?:secret|api|access|private|pre-?shared|auth|account)[ _-]?key(?:[_-]?id)?)"
)
"""Suffix of a secret's name."""
_NAMED = re.compile(_NAMES)
"""For text in lower case."""
_WORDS = (b"pass", b"secret", b"token", b"psk", b"credential", b"pwd", b"key")
"""Every such name contains one of them."""
_NAME = rb"(?<![\w./$-])[\w.-]{0,80}?" + _NAMES
_NOTHING = (
    rb"(?:"
    + re.escape(_MARK)
    + rb"|<?hidden>?|\(hidden\)|\(null\)|\*+|null|none|true|false|yes|no|n/a)(?![^\s\"',;<)\]}])"
)
"""Values that are no secrets although their name is that of one."""

_PEM = re.compile(
    rb"(-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----)"
    rb"(.*?(?=-----END )|(?:\r?\n(?:[A-Za-z0-9+/=]+|[A-Z][\w-]+: [^\r\n]*|" + re.escape(_MARK) + rb")?(?=\r?\n|\Z))*)",
    re.DOTALL,
)


def _rule(pattern: bytes, replacement: bytes = rb"\1MARK") -> tuple[re.Pattern[bytes], bytes]:
    return re.compile(pattern.replace(b"MARK", re.escape(_MARK))), replacement.replace(b"MARK", _MARK)


_NAMED_RULES = (
    # <password>…</password>
    _rule(rb"(?i)(<[\w:.-]{0,80}?" + _NAMES + rb">)(?!" + _NOTHING + rb")[^<\r\n]+(?=</)"),
    # "password": "…", password = '…'
    _rule(rb"(?i)(" + _NAME + rb"[\"']?[ \t]{0,40}[=:][ \t]{0,40}\")(?!" + _NOTHING + rb")(?:[^\"\\\r\n]|\\[^\r\n])+"),
    _rule(rb"(?i)(" + _NAME + rb"[\"']?[ \t]{0,40}[=:][ \t]{0,40}')(?!" + _NOTHING + rb")[^'\r\n]+"),
    # an option among others: rw,secret=…,acl
    _rule(rb"(?i)(?<=,)([\w.-]{0,80}?" + _NAMES + rb"=)(?!" + _NOTHING + rb")[^\s,\"')]+"),
    _rule(rb"(?i)(" + _NAME + rb"=)(?!" + _NOTHING + rb")[^\s\"'&|)]+"),
    _rule(rb"(?i)(" + _NAME + rb"[ \t]{1,40}=[ \t]{0,40})(?!" + _NOTHING + rb")[^\s\"'][^\r\n]*"),
    # a line of a document: password: …; except in nsswitch.conf
    _rule(
        rb"(?i)^([ \t]*(?:- )?[\w -]{0,80}?" + _NAMES + rb"[ \t]{0,40}:[ \t]{1,40})(?!" + _NOTHING
        + rb"|(?:files|compat|systemd|sss|ldap|db|cache|winbind|nis)\b)[^\s\"'{\[|>][^\r\n]*"
    ),
    # --password …
    _rule(rb"(?i)((?<![\w-])--?[\w-]{0,60}?" + _NAMES + rb"[ \t]+)(?!-|" + _NOTHING + rb")[^\s\"';|&]+"),
)  # fmt: skip
"""Rules for single lines that contain the name of a secret."""

_OTHER_RULES = (
    # Authorization: Bearer …; the scheme stays
    (
        (b"authorization",),
        *_rule(
            rb"(?i)\b((?:proxy-)?authorization[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?"
            rb"(?>(?:bearer|basic|digest|token|negotiate)[ ]+)?+)(?!" + _NOTHING + rb")[^\s\"'][^\r\n\"']*",
        ),
    ),
    ((b"bearer ",), *_rule(rb"(?i)\b(bearer +)[A-Za-z0-9._~+/-]{12,}=*")),
    # https://user:password@host
    ((b"://",), *_rule(rb"(?i)(?<![a-z0-9])([a-z][a-z0-9+.-]{0,30}://[^\s/:@\"'<>]*:)[^\s/@\"'<>]+(?=@)")),
    ((b"community",), *_rule(rb"(?i)(SNMP Community String[ \t]*:[ \t]*)(?!MARK)[^\s][^\r\n]*")),
    ((b"sshpass",), *_rule(rb"(\bsshpass[ \t]+-p[ \t]*)(?!MARK)[^\s;|&]+")),
    ((b"ipmitool",), *_rule(rb"(\bipmitool\b[^\r\n;|&]{0,200}?[ \t]-P[ \t]*)(?!MARK)[^\s;|&]+")),
    # unambiguous formats
    ((b"aq",), *_rule(rb"(?<![A-Za-z0-9+/])AQ[A-Za-z0-9+/]{36}==", rb"MARK")),  # cephx
    ((b"munge:",), *_rule(rb"MUNGE:[A-Za-z0-9+/=]+:", rb"MUNGE:MARK:")),
    ((b"dhhc-1:",), *_rule(rb"\bDHHC-1:[0-9A-Fa-f]{2}:[A-Za-z0-9+/=]+:", rb"MARK")),  # NVMe over fabrics
    ((b"eyj",), *_rule(rb"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*", rb"MARK")),  # JSON web token
    ((b"akia", b"asia"), *_rule(rb"(?<![A-Z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])", rb"MARK")),  # AWS
    ((b"nvapi-",), *_rule(rb"\bnvapi-[\w-]{20,}", rb"MARK")),  # NGC
    ((b"gh", b"hf_"), *_rule(rb"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|hf_[A-Za-z0-9]{30,})", rb"MARK")),
    ((b"github_pat_", b"glpat-"), *_rule(rb"\b(?:github_pat_\w{30,}|glpat-[\w-]{20,})", rb"MARK")),
    ((b"$",), *_rule(rb"\$(?:1|2[abxy]?|5|6|7|y|gy|apr1)\$[./A-Za-z0-9$=,]{20,}", rb"MARK")),  # crypt(3)
    # wg show … dump: the interface's own key, the peer's pre-shared key
    (
        (b"=\t",),
        *_rule(rb"(?m)^((?:[\w.-]+\t)?)[A-Za-z0-9+/]{43}=(?=\t[A-Za-z0-9+/]{43}=\t\d+\t(?:off|0x[0-9a-f]+)\r?$)"),
    ),
    (
        (b"=\t",),
        *_rule(
            rb"(?m)^((?:[\w.-]+\t)?[A-Za-z0-9+/]{43}=\t)[A-Za-z0-9+/]{43}="
            rb"(?=\t[^\t\r\n]+\t[^\t\r\n]+\t\d+\t\d+\t\d+)"
        ),
    ),
)
"""Each rule with strings of which the output, in lower case, must contain one: most outputs contain none."""

_SECRET_FILE = re.compile(
    r"\b(?:cat|base64|xxd|od|hexdump|head|tail|strings|dd)\b[^|;&\n]*"
    r"(?:munge\.key|/etc/g?shadow|/\.my\.cnf|/id_(?:rsa|ed25519|ecdsa)(?!\.pub)\b|\.keyring\b|/secrets?/)"
)
_PASSES = 4


def redact(text: str) -> str:
    """The text without its secrets."""
    return redact_bytes(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")


def redact_bytes(data: bytes) -> bytes:
    """The output without its secrets."""
    low = data.lower()
    named = any(word in low for word in _WORDS) and _NAMED.search(low)
    rules = [rule[1:] for rule in _OTHER_RULES if any(needle in low for needle in rule[0])]
    if not named and not rules:
        return data
    for _ in range(_PASSES):
        before = data
        data = _PEM.sub(lambda match: match[1] + _blank(match[2]), data)
        for pattern, replacement in rules:
            data = pattern.sub(replacement, data)
        if named:
            data = b"\n".join(_redact_line(line) for line in data.split(b"\n"))
        if data == before:  # rules may match the output of others
            return data
    return data


def _redact_line(line: bytes) -> bytes:
    if _NAMED.search(line.lower()):
        for pattern, replacement in _NAMED_RULES:
            line = pattern.sub(replacement, line)
    return line


def redacted(result: CommandResult) -> CommandResult:
    """The result without its secrets; the same object when it contains none."""
    stdout, stderr = redact_bytes(result.stdout), redact_bytes(result.stderr)
    if _SECRET_FILE.search(result.command):
        stdout = _blank(stdout)
    command, error = redact(result.command), result.error and redact(result.error)
    same = (stdout, stderr, command, error) == (result.stdout, result.stderr, result.command, result.error)
    return result if same else replace(result, command=command, stdout=stdout, stderr=stderr, error=error)


def redact_data(value: Mapping[str, Any]) -> dict[str, Any]:
    """Inventory data (JSON values) without secrets in its strings."""

    def plain(value: Any) -> Any:
        if isinstance(value, str):
            return redact(value)
        if isinstance(value, Mapping):
            return {key: plain(inner) for key, inner in value.items()}
        return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value

    return {key: plain(inner) for key, inner in value.items()}


def _blank(data: bytes) -> bytes:
    """Replace every line with the mark."""
    return re.sub(rb"[^\r\n]+", _MARK, data)
