"""Remove a request's secrets from texts.

Secrets are the key, the values of headers that the program sets, the values of the base URL's query, and a proxy's user
name and password. A server that received them can echo them, as they are or escaped. Its texts are redacted before they
are truncated, and parts of a secret that a truncation has left are removed, too.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import unquote

from ...providers.model.provider_error import ProviderError
from ...transport.exchange import WireHead

REDACTED = "[key]"
"""The replacement of a secret."""
SHORTEST_KEY = 8
"""The length from which a secret is removed anywhere, in characters."""
SHORTEST_WORD = 4
"""The length from which a key is removed as a whole word, in characters. A shorter key is a placeholder."""
LONGEST_PART = 7
"""The number of characters of a truncated key that may remain."""
LONGEST_VALUE_PART = 15
"""The number of characters of a truncated header or query value that may remain, if it is not named like a secret."""

PLACEHOLDERS = frozenset(
    {"apikey", "dummy", "empty", "fake", "local", "no-key", "none", "null", "ollama", "secret", "test", "token"}
    | {"unused"}
)
"""Placeholder keys for servers without keys, in lower case. They are not removed: they are words of error messages."""

HARMLESS_HEADERS = frozenset(
    {"accept", "accept-encoding", "accept-language", "anthropic-beta", "anthropic-version", "content-type", "host"}
    | {"idempotency-key", "openai-beta", "request-id", "traceparent", "tracestate", "user-agent", "x-client-request-id"}
    | {"x-correlation-id", "x-request-id"}
)
"""Request headers whose values are not secrets. Their values in an error message help to correct the error."""

HARMLESS_QUERY = frozenset({"alt", "api-version", "beta"})

SECRET_NAMES = ("auth", "key", "token", "secret", "pass", "cookie", "session", "credential", "sign")
"""A header or query parameter whose name contains one of these has a key as its value."""

SCHEMES = ("bearer ", "basic ", "token ", "apikey ", "key ")
"""The schemes before the credentials in a header (RFC 9110, 11.4), in lower case."""

_NAMED = {'"': "quot", "&": "amp", "'": "apos", "<": "lt", ">": "gt"}
_LETTERS_AND_DIGITS = re.compile(r"[A-Za-z0-9]+")
_ESCAPE = re.compile(
    r"\\{1,8}+(?:(?:u00|x)(?P<json>[0-9A-Fa-f]{2}))?|%(?:25){0,3}(?P<url>[0-9A-Fa-f]{2})"
    r"|&(?:#0{0,4}(?P<decimal>[0-9]{2,3})(?![0-9])|#[xX]0{0,4}(?P<hex>[0-9A-Fa-f]{2})(?![0-9A-Fa-f])"
    r"|(?P<name>amp|quot|apos|lt|gt));?"  # HTML reads them without the semicolon, too, such as at the end of a cut text
)
_EDGES = frozenset(b" \t\r\n\"'{}[](),:<>")
"""Characters that are in no spelling of a secret, unless the secret has them."""
LONGEST_SPELLING = 16
"""The most characters that a spelling has for one of a secret, but for backslashes without end."""
_ESCAPE_LEVELS = 4
"""How often a text is unescaped: a server may quote JSON in HTML, and that in JSON."""
_CODE = re.compile(r"[A-Za-z]+(?:[-_.][A-Za-z]+)*+")
"""A code of an error that only a key makes secret: words, such as `rate_limit_exceeded`. A program compares it."""
_RUNS = re.compile(r"([A-Za-z0-9]+|\\+|.)", re.DOTALL)

LONGEST_MESSAGE = 4096
"""The number of characters of a message that are kept. A server may send megabytes."""


@dataclass(slots=True, eq=False, repr=False)
class Redaction:
    """The secrets of one request head. The patterns are compiled at the first use."""

    key: str  # the provider's key; empty if it needs none
    _head: WireHead
    _proxy: bytes | None = None
    _earlier: dict[str, bool] = field(default_factory=lambda: {}, init=False)
    _fragments: tuple[str, ...] | None = field(default=None, init=False)
    _parts: list[tuple[int, frozenset[str]]] = field(default_factory=lambda: [], init=False)
    _pattern: re.Pattern[str] | None = field(default=None, init=False)

    def covering(self, earlier: Redaction) -> Redaction:
        """Return a redaction of these secrets and of those of an earlier attempt, which had another key."""
        both = Redaction(self.key, self._head, self._proxy)
        both._earlier = {**self._earlier, **earlier._secrets()}
        return both

    def of_head(self, head: WireHead) -> Redaction:
        """Return a redaction of these secrets and of those of another head for the same request."""
        return Redaction(self.key, head, self._proxy).covering(self)

    def hide(self, text: str) -> str:
        """Return the text without the secrets: as they are, escaped for JSON, a URL or HTML, or in base64."""
        fragments = self._fragments
        if fragments is None:
            fragments = self._prepare()
        for fragment in fragments:
            if fragment in text:
                break
        else:
            return text
        if self._pattern is None:
            self._pattern = re.compile("|".join(_spellings(self._secrets())))
        return self._pattern.sub(REDACTED, text)

    def hide_bytes(self, data: bytes) -> bytes:
        """Return bytes of any encoding without the secrets."""
        text = data.decode("latin-1")
        hidden = self.hide(text)
        return data if hidden is text else hidden.encode("latin-1")

    def hide_parts(self, text: str) -> str:
        """Return the text without the secrets and without longer parts of them: for truncated texts."""
        text = self.hide(text)
        spans: list[tuple[int, int]] = []
        plain, starts, ends = _unescaped(text, range(len(text)), range(1, len(text) + 1))
        for _ in range(_ESCAPE_LEVELS):
            for size, parts in self._parts:
                for at in range(len(plain) - size + 1):
                    if plain[at : at + size] in parts:
                        spans.append((starts[at], ends[at + size - 1]))
            escaped = plain
            plain, starts, ends = _unescaped(escaped, starts, ends)
            if plain == escaped:
                break
        return _without(text, spans)

    def keys(self, known: Iterable[str]) -> frozenset[str]:
        """Return the secrets that are keys, by where they are or by their names, without header values that are known
        to who gets the answer."""
        told = {secret for value in known for secret in _credentials(value)}
        return frozenset(secret for secret, named in self._secrets().items() if named and secret not in told)

    # --- the patterns ---

    def _prepare(self) -> tuple[str, ...]:
        secrets = self._secrets()
        parts: dict[int, set[str]] = {LONGEST_PART + 1: set(), LONGEST_VALUE_PART + 1: set()}
        for secret, named in secrets.items():
            size = LONGEST_PART + 1 if named else LONGEST_VALUE_PART + 1
            for text in (secret.replace("\\", ""), *_in_base64(secret)) if len(secret) >= SHORTEST_KEY else ():
                parts[size].update(text[at : at + size] for at in range(len(text) - size + 1))
        self._parts = [
            (size, frozenset(part for part in found if not _is_word(part))) for size, found in parts.items() if found
        ]
        self._fragments = tuple(dict.fromkeys(_fragment(text) for secret in secrets for text in _variants(secret)))
        return self._fragments

    def _secrets(self) -> dict[str, bool]:
        """Return secret → whether it is a key, by where it is or by its name."""
        values = [("key", self.key)]
        headers = ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in self._head.headers)
        values += [(name, value) for name, value in headers if name not in HARMLESS_HEADERS]
        for pair in self._head.target.decode("latin-1").partition("?")[2].split("&"):
            name, _, value = pair.partition("=")
            if name not in HARMLESS_QUERY:
                values += [(name, unquote(value))] if value else [("key", unquote(name))]
        if self._proxy is not None:
            values.append(("proxy-authorization", self._proxy.decode("latin-1")))
        found = dict(self._earlier)
        for name, value in values:
            named = any(word in name.lower() for word in SECRET_NAMES)
            for secret in _credentials(value):
                if _is_secret(secret, named=named):
                    found[secret] = named or found.get(secret, False)
        return found


class KeyFilter:
    """Removes keys from bytes that are passed on as they come. It changes no other byte.

    It holds back only what may be the beginning of a key: the end of the bytes, from their last character on that is in
    no key. Text of other characters than a key's, such as the blank line after an event, is passed on at once.
    """

    __slots__ = ("_fragments", "_halves", "_inner", "_longest", "_pattern", "_plain", "_secrets")

    def __init__(self, secrets: frozenset[str]) -> None:
        self._secrets = secrets
        self._pattern: re.Pattern[str] | None = None
        fragments = {_fragment(text).encode("latin-1") for secret in secrets for text in _variants(secret)}
        plain = {_fragment(secret).encode("latin-1") for secret in secrets}
        halves = {half for each in plain for half in (each[: len(each) // 2], each[len(each) - len(each) // 2 :])}
        self._fragments, self._plain, self._halves = tuple(fragments), tuple(plain), tuple(halves)
        edges = _EDGES.difference("".join(secrets).encode("latin-1"))
        self._inner = bytes(set(range(256)) - edges) if secrets else b""
        self._longest = LONGEST_SPELLING * max(map(len, secrets), default=0)

    def passes(self, data: bytes, *, is_cut: bool = False) -> bool:
        """Return whether bytes have no key. It is not looked for in base64: each delta of a stream would pay for that.

        is_cut: nor half of a key, since something may have come in between.
        """
        for fragment in self._halves if is_cut else self._plain:  # noqa: SIM110
            if fragment in data:
                return False
        return True

    def ends_well(self, data: bytes) -> bool:
        """Return whether no key begins at the end of the bytes."""
        return data[-1] not in self._inner

    def split(self, data: bytes, *, last: bool = False) -> tuple[bytes, bytes]:
        """Return bytes without keys, and the end of them that may be the beginning of one. last: nothing follows."""
        size = len(data)
        start = max(0, size - self._longest)
        hold = size if last else start + len(data[start:].rstrip(self._inner))
        if not any(fragment in data for fragment in self._fragments):
            return data[:hold], data[hold:]
        if self._pattern is None:
            self._pattern = re.compile("|".join(_spellings(self._secrets)))
        text, pieces, position = data.decode("latin-1"), list[str](), 0
        for match in self._pattern.finditer(text):
            if match.end() == size and not last:
                hold = min(hold, match.start())  # it may be longer
                break
            pieces += [text[position : match.start()], REDACTED]
            position = match.end()
        hold = max(hold, position)
        return "".join([*pieces, text[position:hold]]).encode("latin-1"), data[hold:]

    def hide(self, data: bytes) -> bytes:
        return self.split(data, last=True)[0]


def _spellings(secrets: Iterable[str]) -> Iterator[str]:
    """Yield a pattern for each spelling of each secret, the longest secret first."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) < SHORTEST_KEY:
            yield rf"(?<![\w-]){_spelled(secret)}(?![\w-])"
        else:
            yield from map(_spelled, _variants(secret))


def _without(text: str, spans: list[tuple[int, int]]) -> str:
    """Return the text with these spans redacted. Spans that overlap or touch are redacted as one."""
    pieces: list[str] = []
    position = -1
    for start, end in sorted(spans):
        if start > position:
            pieces += [text[max(position, 0) : start], REDACTED]
        position = max(position, end)
    return "".join([*pieces, text[position:]]) if spans else text


def _unescaped(text: str, starts: Sequence[int], ends: Sequence[int]) -> tuple[str, Sequence[int], Sequence[int]]:
    """Unescape a text once and drop its backslashes.

    Backslashes are dropped because JSON may escape a character without need and a damaged body may hold stray ones;
    secrets are compared without their backslashes, too.

    starts, ends: for each character of the text, where it starts and ends in the original text.
    Returns the plain text, and the same positions for each of its characters.
    """
    pieces: list[str] = []
    plain_starts: list[int] = []
    plain_ends: list[int] = []
    position = 0
    for match in _ESCAPE.finditer(text):
        meaning = _meaning(match)
        pieces += [text[position : match.start()], meaning]
        plain_starts += starts[position : match.start() + len(meaning)]
        plain_ends += ends[position : match.start()]
        position = match.end()
        if meaning:
            plain_ends.append(ends[position - 1])
    if not pieces:
        return text, starts, ends
    return "".join([*pieces, text[position:]]), [*plain_starts, *starts[position:]], [*plain_ends, *ends[position:]]


def _meaning(match: re.Match[str]) -> str:
    """Return the character that an escape represents; empty for a backslash."""
    kind = match.lastgroup
    if kind is None:
        return ""
    value = match[kind]
    if kind == "name":
        character = next(character for character, name in _NAMED.items() if name == value)
    else:
        character = chr(int(value, 10 if kind == "decimal" else 16))
    return "" if character == "\\" else character


def _credentials(value: str) -> Iterator[str]:
    """Yield a header's value without its scheme; for Basic credentials (RFC 7617) also their decoded parts."""
    scheme = next((scheme for scheme in SCHEMES if value.lower().startswith(scheme)), "")
    rest = value[len(scheme) :].strip()
    yield rest
    if scheme == "basic ":
        try:
            user, _, password = base64.b64decode(rest, validate=True).decode("latin-1").partition(":")
        except binascii.Error:
            return
        yield password
        if len(user) >= SHORTEST_KEY:  # a shorter one, such as "admin", is a word of many errors
            yield user


def _is_secret(value: str, *, named: bool) -> bool:
    if len(value) >= SHORTEST_KEY:
        return named or not _is_word(value)
    return named and len(value) >= SHORTEST_WORD and value.lower() not in PLACEHOLDERS


def _is_word(text: str) -> bool:
    """Return whether the text has only letters, as a word that may occur in any sentence."""
    return text.isalpha() and (text.islower() or text.isupper() or text.istitle())


def _in_base64(secret: str) -> Iterator[str]:
    """Yield the secret's forms within base64, which depend on the number of bytes before it."""
    data = secret.encode("latin-1", "replace")
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + data).decode()
        core = encoded[-(-before * 4 // 3) : (before + len(data)) * 4 // 3]
        yield core
        if "+" in core or "/" in core:
            yield core.replace("+", "-").replace("/", "_")


def _variants(secret: str) -> Iterator[str]:
    yield secret
    if len(secret) >= SHORTEST_KEY:
        yield from _in_base64(secret)


def _fragment(text: str) -> str:
    """Return a part of the text that every spelling contains: letters and digits are never escaped."""
    return max(_LETTERS_AND_DIGITS.findall(text), key=len, default="")


def _spelled(text: str) -> str:
    """Return a pattern for a text in which each character may be escaped.

    Its repeats are possessive, so that a text's backslashes are not distributed in all possible ways.
    """
    return "".join(_escaped(run) for run in _RUNS.findall(text))


def _escaped(run: str) -> str:
    if run.isalnum():
        return run
    if run[0] == "\\":
        return r"(?:(?:\\{1,8}+(?:u00|x)5[cC]|%(?:25){0,3}5[cC]|&#(?:0{0,4}92|[xX]0{0,4}5[cC]);?){1,8}+|\\{1,64}+)"
    code = ord(run)
    digits = "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in f"{code:02x}")
    spellings = [
        # JSON, and JSON within JSON: each level doubles the backslashes.
        rf"\\{{0,8}}+(?:{re.escape(run)}|(?:u00|x){digits})",
        f"%(?:25){{0,3}}{digits}",
        f"&#(?:0{{0,4}}{code}|[xX]0{{0,4}}{digits});?",
    ]
    if run in _NAMED:
        spellings.append(f"&{_NAMED[run]};?")
    if run == " ":
        spellings.append(r"\+")
    return f"(?:{'|'.join(spellings)})"


# --- errors and headers without secrets ---


def redacted(error: ProviderError, secrets: Redaction) -> ProviderError:
    """Remove the secrets from an error, and return it.

    A server may quote a secret. It is removed from all texts of the error, from its body, and from the causes that a
    traceback shows. The traceback's frames are removed, too: they hold whole bodies and request heads, and a program
    may keep the error for long.
    """
    for each in _chain(error):
        each.__traceback__ = each.__context__ = None
    hide_words(error, secrets)
    error.message = _bounded(error.message, secrets)
    error.body = secrets.hide_parts(error.body.decode("latin-1")).encode("latin-1")
    code, keys = error.provider_code, secrets.keys(())
    parts = (key[at : at + SHORTEST_KEY] for key in keys for at in range(max(1, len(key) - LONGEST_PART)))
    if code and (not _CODE.fullmatch(code) or any(part in code for part in parts)):
        error.provider_code = _bounded(code, secrets)
    error.provider_code = error.provider_code and error.provider_code[:LONGEST_MESSAGE]
    error.request_id = error.request_id and _bounded(error.request_id, secrets)
    return error


_OS_TEXTS = ("strerror", "filename", "filename2")
"""The texts of an `OSError` that it prints in place of its arguments."""


def hide_words(error: BaseException, secrets: Redaction) -> None:
    """Remove the secrets from the texts and notes of an exception and of its causes."""
    chain = list(_chain(error))
    for each in chain:
        each.args = tuple(_redacted_word(word, secrets) for word in each.args)
        notes: object = getattr(each, "__notes__", None)
        if isinstance(notes, list):
            texts = cast("list[object]", notes)
            texts[:] = [_redacted_word(note, secrets) for note in texts]
        if isinstance(each, OSError):
            for name in _OS_TEXTS:
                text: object = getattr(each, name)
                hidden = _redacted_word(text, secrets)
                if hidden != text:  # a file name that is set to None would be printed
                    setattr(each, name, hidden)
    for each in chain:
        cause = each.__cause__
        if isinstance(cause, BaseExceptionGroup):
            each.__cause__ = _renamed(cast("BaseExceptionGroup[BaseException]", cause), secrets)


def _renamed(group: BaseExceptionGroup[BaseException], secrets: Redaction) -> BaseExceptionGroup[BaseException]:
    """Return a group without secrets in its message and in those of the groups in it. A message cannot be changed."""
    members = [
        _renamed(cast("BaseExceptionGroup[BaseException]", each), secrets)
        if isinstance(each, BaseExceptionGroup)
        else each
        for each in group.exceptions
    ]
    message = _bounded(group.message, secrets)
    if message == group.message and all(old is new for old, new in zip(group.exceptions, members, strict=True)):
        return group
    renamed = BaseExceptionGroup(message, members)
    renamed.__cause__, renamed.__suppress_context__ = group.__cause__, group.__suppress_context__
    for note in getattr(group, "__notes__", ()):
        renamed.add_note(note)
    return renamed


def redacted_headers(headers: dict[str, str], secrets: Redaction) -> dict[str, str]:
    """Return a response's headers without the secrets, because printing a completion shows its headers."""
    return {name: secrets.hide(value) for name, value in headers.items()}


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its causes, and the members of exception groups among them."""
    waiting: list[BaseException] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if each.__cause__ is not None:
            waiting.append(each.__cause__)
        if isinstance(each, BaseExceptionGroup):
            waiting += cast("BaseExceptionGroup[BaseException]", each).exceptions
        yield each


def _redacted_word(word: object, secrets: Redaction) -> object:
    if isinstance(word, str):
        return _bounded(word, secrets)
    return secrets.hide_bytes(word) if isinstance(word, bytes) else word


def _bounded(text: str, secrets: Redaction) -> str:
    """Redact a text, truncate it, and remove parts of secrets that the truncation left."""
    return secrets.hide_parts(secrets.hide(text)[:LONGEST_MESSAGE])
