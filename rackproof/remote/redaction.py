"""Removes secrets from everything that is written: evidence, recordings, logs and pages.

Each rule (``secret_rules.py``) matches a secret and replaces it with ``‹redacted›``. Nothing else changes: the number
of lines stays, and redaction is idempotent. Rules work on bytes, because output need not be text.

Random-looking values that are no secrets stay: hardware addresses, sha256, PCI addresses, serial numbers, UUIDs. A
secret is recognised by its name (``password=``), by an unambiguous format (a key of Ceph), by the command that reads
it, or by its value where the inventory names it (``know``).
"""

from __future__ import annotations

import base64
import functools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple
from urllib.parse import quote, quote_plus
from xml.sax.saxutils import escape

from rackproof.remote.command import CommandResult
from rackproof.remote.secret_rules import (
    FOLLOWING,
    FORMATS,
    LONG,
    MARK,
    NAMED,
    NAMED_RULES,
    OPEN,
    OTHER_RULES,
    PEM,
    SECRET_FILE,
    WORDS,
    Rule,
)

_MARK: Final = MARK.encode()
_PUT: Final = rb"\g<h>" + _MARK + rb"\g<t>"
_PASSES: Final = 9
_CACHED_BYTES: Final = 32768
"""Longest output that is remembered: nodes of one role print the same, and each output is redacted twice."""

_NAME_BYTES: Final = 32
"""Longer than any name that ``NAMED`` finds."""

_NUMBERS: Final = {'"': "&#34;", "'": "&#39;"}
_SECRET_NAME: Final = re.compile(rf"{NAMED.pattern.decode()}$")


class Needles(NamedTuple):
    """Words without which a rule matches nothing, each with its rule's pattern."""

    of_rules: tuple[tuple[bytes, re.Pattern[bytes]], ...]
    one_of_them: re.Pattern[bytes]
    """Most outputs have none: one search takes a quarter of the time of a search for each."""


def _needles(rules: Iterable[Rule]) -> Needles:
    of_rules = tuple((needle, rule.pattern) for rule in rules for needle in rule.needles)
    return Needles(of_rules, re.compile(_one_of(needle for needle, _ in of_rules)))


def _one_of(words: Iterable[bytes]) -> bytes:
    """Pattern of any of the words, a tree by their characters."""
    rests: dict[bytes, list[bytes]] = {}
    for word in words:
        rests.setdefault(word[:1], []).append(word[1:])
    if b"" in rests:
        return b""
    return b"(?:" + b"|".join(re.escape(first) + _one_of(rest) for first, rest in rests.items()) + b")"


_OTHERS: Final = _needles(OTHER_RULES)
_FORMATS: Final = _needles(FORMATS)
_JSON: Final = json.JSONEncoder(ensure_ascii=False)

_known: dict[bytes, None] = {}
_known_pattern: re.Pattern[bytes] | None = None


def know(secrets: Iterable[str]) -> None:
    """Redact these values from now on, in every common encoding. Short and simple words stay: they occur by chance."""
    global _known_pattern
    values = [secret for secret in secrets if _is_distinct(secret)]
    if not values:
        return
    for value in values:
        _known.update(dict.fromkeys(_encodings(value)))
    longest_first = sorted(_known, key=len, reverse=True)
    _known_pattern = re.compile(b"|".join(map(re.escape, longest_first)))
    _redact_short.cache_clear()


def secrets_of(data: Mapping[str, Any]) -> Iterator[str]:
    """Secrets in a node's inventory data, recognised by their keys, at any depth; also values of the environment
    variables that the data names (``password_from``).
    """
    for key, value in data.items():
        name = str(key).lower()
        if isinstance(value, Mapping):
            yield from secrets_of(value)
        elif isinstance(value, list | tuple):
            yield from (secret for inner in value if isinstance(inner, Mapping) for secret in secrets_of(inner))
        elif isinstance(value, str) and _SECRET_NAME.search(name.removesuffix("_from")):
            yield os.environ.get(value, "") if name.endswith("_from") else value


def _is_distinct(secret: str) -> bool:
    """Whether a value is unlikely to occur by chance: 10 characters, or 6 of several kinds."""
    kinds = sum(bool(re.search(kind, secret)) for kind in ("[a-z]", "[A-Z]", "[0-9]", r"[^\w]"))
    return len(secret) >= 10 or (len(secret) >= 6 and kinds > 1)


def _encodings(secret: str) -> Iterator[bytes]:
    """The secret as such, in JSON (twice nested), XML, URLs, shell quotes, base64 at any offset, and hexadecimal."""
    data = secret.encode()
    in_json = [json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (False, True)]
    in_urls = [quote(secret), quote(secret, safe=""), quote_plus(secret)]
    texts = [
        *(secret, *in_json, *(json.dumps(text)[1:-1] for text in in_json), repr(secret)[1:-1]),
        *(escape(secret, names) for names in ({}, {'"': "&quot;"}, {'"': "&quot;", "'": "&apos;"}, _NUMBERS)),
        *(*in_urls, *(re.sub("%..", lambda match: match[0].lower(), text) for text in in_urls)),
        *(secret.replace("'", "'\\''"), secret.replace("'", "'\"'\"'")),
        *(re.sub(special, r"\\\1", secret) for special in (r"([^\w@%+=:,./-])", r"(\W)", r'(["$`\\])', r"(['\\])")),
        *(data.hex(), data.hex().upper()),
    ]
    yield from (text.encode() for text in texts)
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for offset in range(3):  # after other bytes; only the characters that these bytes do not change
            first, end = -(-offset * 8 // 6), (offset + len(data)) * 8 // 6
            yield encode(b"\0" * offset + data)[first:end]


def redact(text: str) -> str:
    """The text without its secrets."""
    return redact_bytes(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")


def redact_bytes(data: bytes) -> bytes:
    """The output without its secrets."""
    return _redact_short(data) if len(data) <= _CACHED_BYTES else _redact(data)


def _redact(data: bytes) -> bytes:
    if _known_pattern is not None:
        data = _known_pattern.sub(_MARK, data)
    low = data.lower()
    rules = [*_that_may_match(_OTHERS, low), *_that_may_match(_FORMATS, b" ".join(LONG.findall(low)))]
    named = any(word in low for word in WORDS)
    pem = b"private key" in low or b"private-lines" in low
    if not (named or rules or pem):
        return data
    for _ in range(_PASSES):
        before = data
        if pem:
            data = PEM.sub(lambda match: match[1] + _blank_key(match[2]), data)
        for pattern in rules:
            data = pattern.sub(_PUT, data)
        if named:
            data = _redact_lines(data)
        if data == before:  # a rule may match what another rule has changed
            return data
    return data


def _that_may_match(needles: Needles, low: bytes) -> Iterable[re.Pattern[bytes]]:
    if not needles.one_of_them.search(low):
        return ()
    return dict.fromkeys(pattern for needle, pattern in needles.of_rules if needle in low)


_redact_short = functools.lru_cache(maxsize=1024)(_redact)


def _redact_lines(data: bytes) -> bytes:
    """Apply the rules for names to the lines that contain the name of a secret."""
    low = data.lower()
    starts: set[int] = set()
    for word in WORDS:
        at = low.find(word)
        while at >= 0:
            if NAMED.search(low, max(at - _NAME_BYTES, 0), at + _NAME_BYTES):
                starts.add(low.rfind(b"\n", 0, at) + 1)
                at = low.find(b"\n", at)
            at = low.find(word, at + 1) if at >= 0 else -1
    pieces, done = [], 0
    for start in sorted(starts):
        end = _end_of_line(data, start)
        if OPEN.search(data, start, end):
            for _ in range(FOLLOWING):
                if end >= len(data) or end + 1 in starts:
                    break
                end = _end_of_line(data, end + 1)
        line = data[start:end]
        for rule in NAMED_RULES:
            line = rule.pattern.sub(_PUT, line)
        pieces += [data[done:start], line]
        done = end
    return b"".join([*pieces, data[done:]])


def _end_of_line(data: bytes, start: int) -> int:
    end = data.find(b"\n", start)
    return len(data) if end < 0 else end


def redacted(result: CommandResult) -> CommandResult:
    """The result without its secrets; the same object when it contains none."""
    stdout, stderr = redact_bytes(result.stdout), redact_bytes(result.stderr)
    if SECRET_FILE.search(result.command):
        stdout = _blank(stdout)
    command, error = redact(result.command), result.error and redact(result.error)
    same = (stdout, stderr, command, error) == (result.stdout, result.stderr, result.command, result.error)
    return result if same else replace(result, command=command, stdout=stdout, stderr=stderr, error=error)


def redact_json(value: Any) -> Any:
    """A JSON value without secrets; the same object when it contains none."""
    text = _in_lines(value).encode("utf-8", "surrogateescape")
    hidden = redact_bytes(text)
    if hidden == text:
        return value
    try:
        return json.loads(hidden)
    except ValueError:  # a rule has replaced a quote
        return _strings(value)


def _in_lines(value: Any) -> str:
    """JSON with a line for each object of a list: rules for names are slow on long lines."""
    if not _lists_objects(value):
        return _JSON.encode(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_JSON.encode(key)}: {_in_lines(value[key])}' for key in value)}}}"
    return f"[{f',{chr(10)}'.join(map(_in_lines, value))}]"


def _lists_objects(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_lists_objects(inner) for inner in value.values() if not isinstance(inner, str))
    return isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value)


def redact_data(value: Mapping[str, Any]) -> dict[str, Any]:
    """Inventory data (JSON values) without secrets in its strings."""
    return {key: _strings(inner) for key, inner in value.items()}


def _strings(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: _strings(inner) for key, inner in value.items()}
    return [_strings(inner) for inner in value] if isinstance(value, list | tuple) else value


def count(data: bytes) -> int:
    """Number of secrets that were redacted in an output."""
    return data.count(_MARK)


def _blank(data: bytes) -> bytes:
    """Replace every line with the mark."""
    return re.sub(rb"[^\r\n]+", _MARK, data)


def _blank_key(data: bytes) -> bytes:
    """Like ``_blank``, but a key on one line keeps its quotes."""
    return re.sub(rb"(?:(?!\\+[\"'])[^\r\n\"'])+", _MARK, data)
