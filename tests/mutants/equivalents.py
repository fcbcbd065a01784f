"""Mutants that no test can notice, because the changed program behaves identically: each with the reason.

A mutant is identified by its path, scope, first changed line and change. The line's number is not used, so that a row
stays valid when lines move.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutants.sites import Mutant


@dataclass(frozen=True)
class Equivalent:
    """One known equivalent.

    column: offset of the change in its line, for a line with several equal changes; None if that does not matter.
    """

    path: str
    scope: str
    text: str
    before: str
    after: str
    reason: str
    column: int | None = None

    def is_for(self, mutant: Mutant) -> bool:
        return self.column in (None, mutant.column) and (
            (self.path, self.scope, self.text, self.before, self.after)
            == (mutant.path, mutant.scope, mutant.text, mutant.before, mutant.after)
        )


_TRY_AGAIN = (
    r'r"(?:try again|retry) (?:in|after) ((?:\d+(?:\.\d+)?(?:ms|h|m|s))+|\d+(?:\.\d+)?)'
    r'\s*(seconds?|ms|milliseconds?)?",'
)
_ESCAPES = {
    "json": r'''r"\\{1,8}+(?:(?:u00|x)(?P<json>[0-9A-Fa-f]{2}))?|%(?:25){0,3}(?P<url>[0-9A-Fa-f]{2})"''',
    "url": r'''r"\\{1,8}+(?:(?:u00|x)(?P<json>[0-9A-Fa-f]{2}))?|%(?:25){0,3}(?P<url>[0-9A-Fa-f]{2})"''',
    "hex": r'''r"|&(?:#0{0,4}(?P<decimal>[0-9]{2,3})(?![0-9])|#[xX]0{0,4}(?P<hex>[0-9A-Fa-f]{2})(?![0-9A-Fa-f])"''',
}
_IN_PROGRESS = (
    "_IN_PROGRESS = frozenset({errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EAGAIN, "
    'getattr(errno, "WSAEWOULDBLOCK", -1)})'
)

EQUIVALENTS: tuple[Equivalent, ...] = (
    Equivalent(
        "providers/retry_hints.py",
        "retry_after_ms",
        'hint = _bounded(_milliseconds(unrepeated(headers.get("retry-after-ms", ""))))',
        '""',
        "'x'",
        "an absent header and an unreadable one both give no hint",
    ),
    Equivalent(
        "providers/json_values.py",
        "_largest_string",
        """largest, start = (0, 0), data.find(b'"') + 1""",
        "+",
        "-",
        "the first string of an object is a name, never the large one; a bare string is then read by the parser",
    ),
    Equivalent(
        "providers/json_values.py",
        "exactly_object",
        "return exact if type(exact) is dict else value",
        "type(exact) is dict",
        "True",
        "both parsers read an object from the text of an object; the condition is for the type checkers",
    ),
    Equivalent(
        "providers/gemini/partial_arguments.py",
        "_Container.enter",
        "self.count += 1",
        "1",
        "2",
        "the count of an object's members is only compared with zero; an array's is set in the branch above",
    ),
    Equivalent(
        "engine/redaction.py",
        "Redaction.hide_parts",
        "for place in range(len(plain) - size + 1):",
        "-",
        "+",
        "a slice beyond the last place is shorter than the parts, so it is none of them",
    ),
    Equivalent(
        "providers/profiles.py",
        "_address",
        'return "", ""',
        '""',
        "'x'",
        "neither text is the address of a row",
    ),
    Equivalent(
        "manystream/simulator/schema_example.py",
        "TYPES",
        '"string": _text,',
        '"string"',
        "'stringx'",
        "a type that is not in the table gives a text, too",
    ),
    Equivalent(
        "manystream/simulator/example_values.py",
        "TEXTS",
        '"units": "celsius",',
        '"units"',
        "'unitsx'",
        "a word that is not in the table is looked up without its s, and `unit` has the same text",
    ),
    Equivalent(
        "manystream/cli/connectivity.py",
        "_Answer.on_body",
        "if len(self.body) > MOST_BODY_BYTES:",
        ">",
        ">=",
        "a body of exactly this length is kept whole, and nothing else is read from the answer",
    ),
    Equivalent(
        "engine/traffic/queue.py",
        "FairQueue._drop",
        "if len(self._deadlines) > 2 * self._with_deadline + 32:",
        ">",
        ">=",
        "old entries leave the heap one call earlier; entries of calls that wait stay either way",
    ),
    Equivalent(
        "engine/traffic/quota.py",
        "Quota._read_limit",
        "if abs(rate - bucket.rate) > 1e-9 * rate:",
        ">",
        ">=",
        "a rate that differs by exactly the tolerance for rounding may be taken or left",
    ),
    Equivalent(
        "manystream/store.py",
        "ConversationStore._run",
        "if not _is_busy(error) or time.monotonic() > deadline:",
        ">",
        ">=",
        "the clock does not stop at the deadline; one attempt more or less at that very moment",
    ),
    Equivalent(
        "manystream/cli/batch.py",
        "Run",
        "interrupted: bool = False",
        "False",
        "True",
        "a run that ends without an error has set it before it is read",
    ),
    Equivalent(
        "transport/tls_socket.py",
        "TLSSocket.recv",
        "if self._incoming.pending and data:",
        "and",
        "or",
        "with data and nothing pending no record more is read; at the end nothing is read, whatever is pending",
    ),
    Equivalent(
        "providers/openai/chat/converter.py",
        "ChatConverter._system_messages",
        'return [{"role": role, "content": [parts.part(Text(text), "system") for text in texts]}] if texts else []',
        '"system"',
        "'systemx'",
        "the place is for errors and warnings, and a block of text has none",
    ),
    Equivalent(
        "providers/openai/rate_limits.py",
        "SERVER_HEADERS",
        'HeaderRow("tokens", Unit.TOKENS, "x-tokenlimit-limit", "x-tokenlimit-remaining", "", SECOND),',
        '""',
        "'x'",
        "Together reports no reset for tokens: no response has a header without a name, and none has a header `x`",
    ),
    Equivalent(
        "providers/gemini/partial_arguments.py",
        "PartialArguments.close",
        "tree = self._tree() if self._late else {}",
        "self._late",
        "True",
        "without late members nothing is read from the tree, and it gets no member",
    ),
    Equivalent(
        "engine/body/stream.py",
        "StreamBody._take",
        "return False",
        "False",
        "True",
        "no fast path follows either way: a terminal event, and one that is many, leave no template; an attempt that is"
        " over reads no more",
    ),
    Equivalent(
        "manystream/ray/worker.py",
        "Worker.__init__",
        "self._needs_more = False",
        "False",
        "True",
        "no call starts before the first reply is confirmed, so the first exchange waits for no answer that could come",
    ),
    *(
        Equivalent(
            "providers/openai/responses/converter.py",
            "ITEM_OF_PART",
            text,
            before,
            after,
            "a view of a chunk shows text, calls and the finish; reasoning is none of these, whatever its item",
        )
        for text, before, after in (
            ('"reasoning_text": ("reasoning", "content"),', '"reasoning"', "'reasoningx'"),
            ('"reasoning_text": ("reasoning", "content"),', '"content"', "'contentx'"),
            ('"summary_text": ("reasoning", "summary"),', '"reasoning"', "'reasoningx'"),
            ('"summary_text": ("reasoning", "summary"),', '"summary"', "'summaryx'"),
        )
    ),
    *(
        Equivalent(
            "transport/liveness.py",
            "PEEKED_BYTES",
            "PEEKED_BYTES = 16 * 1024",
            before,
            after,
            "any byte that is read ends the connection, however many are",
        )
        for before, after in (("16", "17"), ("*", "+"), ("1024", "1025"))
    ),
    Equivalent(
        "providers/anthropic/stream.py",
        "MessagesStream.take_event",
        'path = REPEATED.get(string(mapping(payload, "delta"), "type") or "")',
        '""',
        "'x'",
        "neither is the type of a delta",
    ),
    Equivalent(
        "providers/error_bodies.py",
        "_TRY_AGAIN",
        _TRY_AGAIN,
        "seconds",
        "secondsx",
        "a number without a unit is one of seconds, too",
    ),
    Equivalent(
        "providers/anthropic/rate_limits.py",
        "HEADERS",
        'reset_form="moment",',
        '"moment"',
        "'momentx'",
        "the forms are three, and the last one is a moment without a look at its word",
    ),
    *(
        Equivalent(
            "engine/redaction.py",
            "_ESCAPE",
            _ESCAPES[kind],
            kind,
            f"{kind}x",
            "groups of hexadecimal digits need no names",
        )
        for kind in ("json", "url", "hex")
    ),
    *(
        Equivalent("transport/dial.py", "_IN_PROGRESS", _IN_PROGRESS, before, after, reason)
        for before, after, reason in (
            ("errno.EWOULDBLOCK", "errno.EAGAIN", "they are one number on POSIX; on Windows the fourth entry is it"),
            (
                "errno.EAGAIN",
                "errno.EINPROGRESS",
                "EWOULDBLOCK is it on POSIX; on Windows no connect gives it",
            ),
            ('"WSAEWOULDBLOCK"', "'WSAEWOULDBLOCKx'", "on Windows errno.EWOULDBLOCK is the same number"),
            ("1", "2", "the value where the error does not exist: no error number is negative"),
        )
    ),
)


def reason_for(mutant: Mutant) -> str:
    """Return the reason why the mutant cannot be noticed; empty if none is known."""
    return next((row.reason for row in EQUIVALENTS if row.is_for(mutant)), "")
