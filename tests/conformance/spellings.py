"""Variants of a recorded body with equal meaning, which must be read like the recorded one.

Server-sent events can be framed in many ways and JSON can be written in many ways; servers use all of them. Each
variant means the same as its original, so a reader with different results has a defect.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

import manystream as ms
from manystream.providers.json.json_values import JSON, MalformedJSONError, loads
from manystream.transport.sse import BARE_LINES, ServerSentEvent, SSEParser

from .corpus import Case
from .exchange import provider_for
from .outcome import arguments_of
from .replay import Reading, is_event_stream, read_body

BOM = b"\xef\xbb\xbf"


def framings(events: Sequence[ServerSentEvent], *, names_needed: bool) -> Iterator[tuple[str, bytes]]:
    """Yield the events, written in each way that the standard allows."""
    yield "LF", _write(events)
    yield "CR", _write(events, end=b"\r")
    yield "CRLF", _write(events, end=b"\r\n")
    yield "no space after the colon", _write(events, space=b"")
    yield "a byte order mark", BOM + _write(events)
    yield "comments and fields that mean nothing", _write(events, before=b": still here\n\nretry: 10\nid: 7\n")
    yield "pings in comments", _write(events, after=b": ping\n\n:\n\n")
    yield "blank lines", b"\n\n" + _write(events, after=b"\n\n\n")
    yield "the name after the data", _write(events, name_last=True)
    if not names_needed:
        yield "no event names", _write([("", data) for _, data in events])


def _write(
    events: Sequence[ServerSentEvent],
    *,
    end: bytes = b"\n",
    space: bytes = b" ",
    before: bytes = b"",
    after: bytes = b"",
    name_last: bool = False,
) -> bytes:
    written: list[bytes] = []
    for name, data in events:
        named = b"event:" + space + name.encode() + end if name else b""
        lines = b"".join(b"data:" + space + line + end for line in data.split(b"\n"))
        written.append(before + (lines + named if name_last else named + lines) + end + after)
    return b"".join(written)


def rewritten(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield JSON text, written in other ways; nothing for text that is not JSON."""
    try:
        value = loads(data)
    except MalformedJSONError:
        return
    yield "JSON with spaces and escapes", json.dumps(value, ensure_ascii=True, separators=(" , ", " : ")).encode()
    yield "JSON with its members backwards", json.dumps(_backwards(value), ensure_ascii=False).encode()


def _backwards(value: JSON) -> JSON:
    if isinstance(value, dict):
        return {name: _backwards(member) for name, member in reversed(value.items())}
    return [_backwards(member) for member in value] if isinstance(value, list) else value


def respelled(case: Case) -> Iterator[tuple[str, bytes]]:
    """Yield all variants of a body."""
    if not is_event_stream(case):
        yield from rewritten(case.body)
        return
    parser = SSEParser()
    events = [*parser.feed(case.body), *_whole(parser.end())]
    if any(name == BARE_LINES for name, _ in events):
        return  # the variants would lose the part of this body that is not an event
    yield from framings(events, names_needed=any(name and b'"type"' not in data for name, data in events))
    rows = [dict(rewritten(data)) for _, data in events]
    for what in dict.fromkeys(what for row in rows for what in row):
        spelled = [(name, row.get(what, data)) for row, (name, data) in zip(rows, events, strict=True)]
        yield what, _write(spelled)


def _whole(last: Sequence[ServerSentEvent]) -> list[ServerSentEvent]:
    """Return the event that the end of the body left without its blank line, if only that is missing."""
    return [(name, data) for name, data in last if data.strip() == b"[DONE]" or next(rewritten(data), None)]


def spelling_faults(case: Case) -> list[str]:
    """Return the variants whose results differ from the original's."""
    provider = provider_for(case.dialect, case.server)
    plain = _comparable(read_body(case, provider, case.body))
    found: list[str] = []
    for what, body in respelled(case):
        if _comparable(read_body(case, provider, body)) != plain:
            found.append(f"{case.dialect} {case.name}: {what} is read as something else")
    return found


def _comparable(reading: Reading) -> tuple[object, ...]:
    error = reading.error
    compared = None if error is None else (error.category, error.message, error.provider_code, error.retryable)
    return compared, None if reading.response is None else _with_parsed_arguments(reading.response)


def _with_parsed_arguments(response: ms.Response) -> tuple[object, ...]:
    """Return the response for comparison. Arguments are parsed: if the server sent an object, their text is ours."""
    content = [
        (block.id, block.name, json.dumps(arguments_of(block.arguments), sort_keys=True), block.complete, block.state)
        if isinstance(block, ms.ToolCall) else block for block in response.content
    ]  # fmt: skip
    return content, replace(response, content=[])
