"""OpenAI Responses over a WebSocket: `GET /v1/responses` with `Upgrade: websocket`.

The server keeps the latest answer of each stream in the memory of the connection. A `response.create` that continues
one of them becomes a `Turn`: the request that HTTP would have sent, with the whole conversation as the server knows it.
The service answers it like any other, and the journal shows it with the message that asked it. One turn runs at a time;
others wait.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..http_server import Headers, HTTPRequest, WebSocket, text_frame
from .json_text import JSON, JSONObject, dumps, loads_object, string
from .knobs import HEADER, Knobs, combine
from .openai_chat import error_object
from .openai_responses import INCOMPLETE, items_of, whole_input
from .program import Ending, Program
from .prompt import APIError, Prompt
from .scenario import Scenario
from .store import StoredAnswer

if TYPE_CHECKING:
    from .connection import Connection
    from .server import Server

NORMAL, TOO_BIG = 1000, 1009
BEFORE_TEXT, AFTER_TEXT = 4, 4
"""The number of events before the first piece of an answer's text, and after the last."""


@dataclass(slots=True, kw_only=True)
class Turn(HTTPRequest):
    """A `response.create` as a request over HTTP.

    sent: the message.
    stream: the name of its stream; None for the connection's own.
    parent: the answer that it continues, if the connection's memory has it.
    """

    sent: bytes
    stream: str | None
    parent: StoredAnswer | None = field(repr=False)

    def check(self, prompt: Prompt) -> None:
        """Raise `APIError` for what is not served over a WebSocket."""
        if prompt.background:
            raise APIError(400, "'background' is not supported over WebSocket.", param="background")
        if prompt.previous and not prompt.stored:
            message = f"Previous response with id '{prompt.previous[:80]}' not found."
            raise APIError(400, message, param="previous_response_id", code="previous_response_not_found")

    def of(self, scenario: Scenario) -> Scenario:
        """The answer, with an id that no other conversation's has."""
        return replace(scenario, identity=scenario.identity + hashlib.blake2b(self.body).hexdigest())

    def frame(self, event: bytes) -> bytes:
        data = event.partition(b"data: ")[2][:-2]
        if self.stream is not None and data.endswith(b"}"):
            data = data[:-1] + b',"stream_id":' + dumps(self.stream) + b"}"
        return text_frame(data)


def error_frame(failure: APIError, stream: str | None, headers: Headers = ()) -> bytes:
    """The frame of an error. headers: those of the response over HTTP."""
    error = error_object(failure)
    if headers:
        error["headers"] = dict(headers)
    return text_frame(dumps(named({"type": "error", "status": failure.status, "error": error}, stream)))


def named(event: JSONObject, stream: str | None) -> JSONObject:
    return event if stream is None else {**event, "stream_id": stream}


class ResponsesSocket(WebSocket):
    """One connection.

    latest: stream → the answer that it may continue.
    turn: the turn that is answered; None between two.
    waiting: the turns that wait, as messages and parsed.
    steers: id of an answer → id and input of each `response.steer`.
    """

    __slots__ = ("_handshake", "_line", "_owner", "_program", "_steered", "latest", "steers", "turn", "waiting")

    def __init__(self, owner: Server, line: Connection, handshake: HTTPRequest) -> None:
        self._owner = owner
        self._line = line
        self._handshake = handshake
        self._program: Program | None = None
        self._steered = 0
        WebSocket.__init__(self, line, owner.http, owner.loop.clock() + self._knobs().lifetime)
        self.latest: dict[str | None, StoredAnswer] = {}
        self.turn: Turn | None = None
        self.waiting: deque[tuple[bytes, JSONObject]] = deque()
        self.steers: dict[str, list[tuple[str, list[JSONObject]]]] = {}

    def _knobs(self) -> Knobs:
        return combine(self._owner.service.knobs, self._handshake.headers.get(HEADER, ""))

    def receive(self, data: bytes) -> None:
        program, line = self._line.program, self._line
        if program is None or program.ending is not Ending.SILENT or line.position < line.end:
            super().receive(data)

    def message(self, data: bytes) -> None:
        largest, members = self._knobs().largest, loads_object(data)
        kind = string(members, "type")
        if largest is not None and len(data) > largest:
            self.close(TOO_BIG, f"a message of more than {largest} bytes")
        elif members is None or kind not in ("response.create", "response.steer"):
            self._refuse(APIError(400, f"Invalid event type: {kind[:80]!r}.", param="type"), None)
        elif kind == "response.steer":
            self._steer(members)
        else:
            self.waiting.append((data, members))
            self._go_on()

    def outlived(self) -> None:
        self._refuse(APIError(400, "The connection has reached its limit.", code="websocket_connection_limit_reached"))
        self.close(NORMAL)

    def next(self) -> None:
        turn, program, self.turn = self.turn, self._program, None
        if turn is not None and program is not None:
            answer = program.answer
            if answer is not None and (answer.prompt.prewarm or answer.scenario.finish not in INCOMPLETE):
                self.latest[turn.stream] = answer
            elif program.counted or turn.parent is self.latest.get(turn.stream):
                self.latest.pop(turn.stream, None)
            if answer is not None and answer.id in self.steers:
                self._succeed(turn, answer)
        self._go_on()
        if self.turn is None:
            self.rest()

    def _go_on(self) -> None:
        while self.waiting and self.turn is None and self.connection.is_open:
            self._create(*self.waiting.popleft())

    def _create(self, sent: bytes, members: JSONObject) -> None:
        stream, previous = members.pop("stream_id", None), string(members, "previous_response_id")
        fault = self.why_not(stream)
        if fault is not None:
            self._refuse(APIError(400, fault[1], param="stream_id", code=fault[0]))
            return
        name = stream if isinstance(stream, str) else None
        parent = next((each for each in self.latest.values() if each.id == previous), None)
        if parent is not None:
            members["input"] = [*self._steered_input(parent), *items_of(members)]
            del members["previous_response_id"]
        self._start(members, sent, name, parent)

    def _steered_input(self, parent: StoredAnswer) -> list[JSONObject]:
        """The conversation up to an answer, with what steered it."""
        given = [item for _, items in self.steers.pop(parent.id, ()) for item in items]
        return whole_input(parent.prompt, parent.scenario, given)

    def _start(self, members: JSONObject, sent: bytes, stream: str | None, parent: StoredAnswer | None) -> None:
        members = {name: value for name, value in members.items() if name != "type"} | {"stream": True}
        shake = self._handshake
        turn = Turn("POST", shake.target, shake.headers, dumps(members), sent=sent, stream=stream, parent=parent)
        self.turn = turn
        self.begin()
        self._owner.begin(self._line, turn)
        self._program = self._line.program

    def _refuse(self, failure: APIError, stream: str | None = None) -> None:
        self.connection.write(error_frame(failure, stream))

    # --- steering ---

    def _steer(self, members: JSONObject) -> None:
        """Take user input for the answer that is being sent: a text ends at once, and an answer with the input follows.
        An answer with tool calls waits for their results."""
        turn, program, target = self.turn, self._program, string(members, "previous_response_id")
        answer = program.answer if turn is not None and program is not None else None
        items = items_of(members)
        code = ""
        if not items or members.keys() - {"type", "input", "previous_response_id"}:
            code = "invalid_input"
        elif answer is None or answer.id != target:
            known = any(each.id == target for each in self.latest.values())
            code = "response_already_completed" if known else "response_not_found"
        if code or answer is None or turn is None:
            self._tell("failed", {"previous_response_id": target, "input": members.get("input")}, None, error={
                "type": "invalid_request_error", "code": code, "message": f"The input cannot steer {target[:80]!r}.",
            })  # fmt: skip
            return
        self._steered += 1
        steer = f"steer_{self._steered}"
        self.steers.setdefault(target, []).append((steer, items))
        self._tell("accepted", {"id": steer, "previous_response_id": target}, turn.stream)
        self._cut(turn, answer)

    def _tell(self, kind: str, steer: JSONObject, stream: str | None, **members: JSON) -> None:
        event: JSONObject = {"type": f"response.steer.{kind}", "sequence_number": 0, "steer": steer, **members}
        self.send(dumps(named(event, stream)))

    def _cut(self, turn: Turn, answer: StoredAnswer) -> None:
        """End a text after the piece that was sent last."""
        line, scenario = self._line, answer.scenario
        if scenario.calls or scenario.thinking_pieces or line.position >= line.end - AFTER_TEXT:
            return
        pieces = scenario.text_pieces[: max(0, line.position - BEFORE_TEXT)]
        answer.scenario = replace(scenario, text_pieces=pieces, finish="steered")
        events = answer.wire.frames(answer.prompt, answer.scenario)
        line.frames = [*line.frames[: line.position], *map(turn.frame, events[line.position :])]
        line.end = len(line.frames)

    def _succeed(self, turn: Turn, answer: StoredAnswer) -> None:
        """Go on with an answer that was steered."""
        if answer.scenario.calls:
            required: list[JSON] = [
                {"type": "function_call_output", "call_id": f"call_{call.id}", "name": call.name}
                for call in answer.scenario.calls
            ]
            for steer, _ in self.steers[answer.id]:
                about: JSONObject = {"id": steer, "previous_response_id": answer.id}
                self._tell("pending", about, turn.stream, reason="waiting_for_required_input", required_input=required)
            return
        members: JSONObject = {**answer.prompt.body, "input": [*self._steered_input(answer)]}
        self._start(members, turn.sent, turn.stream, answer)
