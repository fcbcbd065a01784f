"""A response as the server's loop sends it: the bytes of each frame, their pace, and what happens after the last.

Everything that can be done before the first byte is done here, once per distinct request: events become HTTP chunks,
faults are built in, the head precedes the first frame and the terminator follows the last. The loop only sends. This
module knows no sockets, no dialects and no clock.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..http_server import LAST_CHUNK, PING_FRAME, Headers, chunk, close_frame, http_head
from .knobs import Knobs
from .limiter import Ticket, Usage
from .scenario import STAMP_MARK, STAMP_WIDTH

if TYPE_CHECKING:
    from .store import StoredAnswer

FRAMES_PER_SEND = 64
"""Without a rate, one `send` holds at most so many events, so that all streams make progress."""

_STAMP = re.compile(STAMP_MARK.encode() + rb"(\d{%d})" % (STAMP_WIDTH - len(STAMP_MARK)))


class Ending(enum.Enum):
    """What happens after the last frame."""

    KEEP = "keep"
    CLOSE = "close"
    RESET = "reset"
    RESET_NOW = "reset now"
    STALL = "stall"
    SILENT = "silent"
    UPGRADE = "upgrade"


class Template:
    """A frame that shows when it was sent.

    numbers: the stamps in the frame, by number. A stamp that no earlier frame has shown is made when the frame is sent.
    The number of digits is fixed, so the size of the HTTP chunk is known beforehand.
    """

    __slots__ = ("newest", "numbers", "text")

    def __init__(self, text: bytes, numbers: tuple[int, ...]) -> None:
        self.text: bytes = text
        self.numbers: tuple[int, ...] = numbers
        self.newest: int = max(numbers)

    def render(self, stamps: list[int], now: int) -> bytes:
        """The bytes of the frame. `now` is in nanoseconds. New stamps are appended to `stamps`."""
        while len(stamps) <= self.newest:
            stamps.append(now)
        if len(self.numbers) == 1:
            return self.text % stamps[self.newest]
        return self.text % tuple([stamps[number] for number in self.numbers])


@dataclass(slots=True)
class Program:
    """One response, ready to be sent.

    frames: the bytes to send, in order. Each frame is sent whole.
    templates: position → the frame that is built when it is sent, because it holds the time.
    events: number of stream events in the frames.
    interval: seconds between two frames; 0 sends without pauses.
    delay: seconds before the first frame.
    ending: what follows the last frame.
    ping: the keep-alive event that a stalled stream sends.
    ping_interval: seconds between two pings; 0 sends none.
    frames_per_send: how many frames one `send` may hold.
    counted: whether the statistics count it as an answer. Errors and the simulator's own pages are not counted.
    usage: what the answer uses of the limits; None for errors and pages.
    ticket: the account of an accepted answer, where limits cover it.
    following: the program that continues the same response. Its delay starts when the last frame of this program was
        due. Only the ending of the last program counts.
    on_accept: what happens in the prompt caches when the limits have accepted the request.
    answer: the kept answer that it shows.
    cancels: the kept answer that its request has cancelled, and the end of the responses that show it.
    """

    frames: list[bytes]
    templates: dict[int, Template] = field(default_factory=dict[int, Template])
    events: int = 0
    interval: float = 0.0
    delay: float = 0.0
    ending: Ending = Ending.KEEP
    ping: bytes = b""
    ping_interval: float = 0.0
    frames_per_send: int = FRAMES_PER_SEND
    counted: bool = True
    following: Program | None = None
    usage: Usage | None = None
    ticket: Ticket | None = None
    on_accept: Callable[[], None] | None = None
    answer: StoredAnswer | None = None
    cancels: tuple[StoredAnswer, Program] | None = None


def with_headers(program: Program, headers: Headers) -> Program:
    """The program with more headers. It shares all frames but the first."""
    if not headers:
        return program
    lines = "".join(f"\r\n{name}: {value}" for name, value in headers).encode("latin-1")
    frames = [_with_lines(program.frames[0], lines), *program.frames[1:]]
    templates = program.templates
    if 0 in templates:
        first = templates[0]
        text = _with_lines(first.text, lines.replace(b"%", b"%%"))
        templates = {**templates, 0: Template(text, first.numbers)}
    return replace(program, frames=frames, templates=templates)


def _with_lines(frame: bytes, lines: bytes) -> bytes:
    """A response's first frame with more lines after the status line."""
    status, separator, rest = frame.partition(b"\r\n")
    return status + lines + separator + rest if separator else frame


def complete(status: int, headers: Headers, body: bytes, *, delay: float = 0.0, keep: bool = True) -> Program:
    """A response with a known length, sent at once: a page or an error."""
    frame = http_head(status, [*headers, ("content-length", str(len(body))), *_closing(keep)]) + body
    return Program([frame], delay=delay, ending=Ending.KEEP if keep else Ending.CLOSE, counted=False)


def no_response(delay: float) -> Program:
    """No response: the connection closes."""
    return Program([b""], delay=delay, ending=Ending.CLOSE)


def unstreamed(
    headers: Headers, body: bytes, knobs: Knobs, *, error_body: bytes = b"", status: int = 200, keep: bool = True
) -> Program:
    """An unstreamed answer. Positions of faults count bytes of the body. An error replaces the body."""
    if knobs.error is not None:
        body = error_body
    if knobs.malformed is not None:
        body = body[: position_of(knobs.malformed, len(body))]
    [sent], ending, ended = _ended_early([body], knobs, lambda bodies, place: [bodies[0][:place]], len(body))
    if ending is Ending.KEEP and not keep:
        ending = Ending.CLOSE
    if knobs.chunk:
        frames = [http_head(status, [*headers, ("transfer-encoding", "chunked"), *_closing(keep)])]
        frames += [chunk(piece) for piece in _cut([sent], knobs.chunk)]
        frames.append(LAST_CHUNK if ended else b"")
    else:
        length = len(sent) if ended else len(body)
        frames = [http_head(status, [*headers, ("content-length", str(length)), *_closing(keep)]) + sent]
    return Program(
        frames,
        _templates(frames) if knobs.stamp else {},
        delay=knobs.delay,
        ending=ending,
        frames_per_send=1 if knobs.chunk else FRAMES_PER_SEND,
    )


def streamed(
    headers: Headers,
    events: Sequence[bytes],
    knobs: Knobs,
    *,
    error_events: Sequence[bytes] = (),
    ping: bytes = b"",
    keep: bool = True,
    frame: Callable[[bytes], bytes] | None = None,
) -> Program:
    """A chunked response, one event after the other, with the faults that the knobs ask for.

    error_events: the events that replace event `knobs.error` and all that follow.
    frame: makes an event a message of a WebSocket, on which the answer is sent.
    """
    head = http_head(200, [*headers, ("transfer-encoding", "chunked"), *_closing(keep)])
    count = len(events)
    events = list(events)
    if knobs.malformed is not None:
        place = min(position_of(knobs.malformed, count), count - 1)
        events[place] = _broken(events[place])
    if knobs.error is not None:
        events = [*events[: position_of(knobs.error, count)], *error_events]
    events, ending, ended = _ended_early(events, knobs, lambda all, place: all[:place], len(events))
    if frame is not None:
        head, events = b"", [frame(event) for event in events]
        if knobs.truncate is not None or knobs.close is not None:
            events = events if knobs.truncate is not None else []
            events, ending = [*events, close_frame(knobs.close or 1000)], Ending.CLOSE
    bodies = _cut(events, knobs.chunk) if knobs.chunk else events
    if knobs.cut_bytes is not None:
        bodies, ending, ended = [b"".join(bodies)[: knobs.cut_bytes]], Ending.CLOSE, False
    framed = {body: chunk(body) if frame is None else body for body in set(bodies)}  # equal events share one copy
    frames = [framed[body] for body in bodies] or [b""]
    frames[0] = head + frames[0]
    if ended and frame is None:
        frames[-1] += LAST_CHUNK
    if ending is Ending.KEEP and not keep:
        ending = Ending.CLOSE
    return Program(
        frames,
        _templates(frames) if knobs.stamp else {},
        events=len(events),
        interval=len(events) / knobs.rate / len(frames) if knobs.rate else 0.0,
        delay=knobs.delay,
        ending=ending,
        ping=(chunk(ping) if frame is None else PING_FRAME) if ping else b"",
        ping_interval=knobs.ping,
        frames_per_send=1 if knobs.chunk else FRAMES_PER_SEND,
    )


def resumed(program: Program, ready: int, wait: float) -> Program:
    """The streamed response, of which the head and `ready` frames are sent at once, the others after `wait` seconds."""
    frames, templates = program.frames, program.templates
    if ready >= len(frames):
        return replace(program, interval=0.0)
    rest = {place - ready: template for place, template in templates.items() if place >= ready}
    if ready:
        begun = replace(program, frames=frames[:ready], interval=0.0)
        begun.templates = {place: template for place, template in templates.items() if place < ready}
        following = replace(program, frames=frames[ready:], templates=rest, delay=wait)
    else:
        head = head_of(frames[0])
        first = frames[0].removeprefix(head)
        if 0 in rest:
            rest[0] = Template(rest[0].text.removeprefix(head_of(rest[0].text)), rest[0].numbers)
        begun = replace(program, frames=[head], templates={}, events=0, interval=0.0)
        following = replace(program, frames=[first, *frames[1:]], templates=rest, delay=wait)
    begun.following = following
    return begun


def content_of(program: Program) -> tuple[int, bytes]:
    """The status and the body of a response that is neither streamed nor chunked; status 500 for no response."""
    head, _, body = program.frames[0].partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]) if head else 500, body


def head_of(frame: bytes) -> bytes:
    """The head of a response in its first frame."""
    return frame[: frame.index(b"\r\n\r\n") + 4]


ENDINGS: tuple[tuple[str, Ending], ...] = (
    ("cut", Ending.CLOSE),
    ("reset", Ending.RESET),
    ("stall", Ending.STALL),
    ("silent", Ending.SILENT),
    ("truncate", Ending.KEEP),
)
"""Knob → what follows the last event before its position. The first knob that is set applies."""


def _ended_early(
    parts: list[bytes], knobs: Knobs, shorten: Callable[[list[bytes], int], list[bytes]], length: int
) -> tuple[list[bytes], Ending, bool]:
    """The parts to send, what follows them, and whether the body ends with correct HTTP framing."""
    for name, ending in ENDINGS:
        position: int | None = getattr(knobs, name)
        if position is not None:
            return shorten(parts, position_of(position, length)), ending, ending is Ending.KEEP
    return parts, Ending.KEEP, True


def _closing(keep: bool) -> list[tuple[str, str]]:
    return [] if keep else [("connection", "close")]


def position_of(position: int, count: int) -> int:
    """The position of a fault among `count` events. A negative position counts from the end."""
    return max(0, position + count if position < 0 else min(position, count))


def _broken(event: bytes) -> bytes:
    """The event without the second half of its data: JSON that stops in the middle."""
    body = event.rstrip(b"\r\n")
    start = body.rfind(b"data: ")
    start = 0 if start < 0 else start + len(b"data: ")
    return body[: start + max(1, (len(body) - start) // 2)] + event[len(body) :]


def _cut(events: Sequence[bytes], size: int) -> list[bytes]:
    """The body in slices of `size` bytes."""
    body = b"".join(events)
    return [body[start : start + size] for start in range(0, len(body), size)]


def _templates(frames: Sequence[bytes]) -> dict[int, Template]:
    """Position → template, for the frames that show stamps."""
    found: dict[int, Template] = {}
    for position, frame in enumerate(frames):
        numbers = tuple(int(number) for number in _STAMP.findall(frame))
        if numbers:
            text = _STAMP.sub(b"%%0%dd" % STAMP_WIDTH, frame.replace(b"%", b"%%"))
            found[position] = Template(text, numbers)
    return found
