"""Compare one answer streamed and unstreamed: both must give the same `Response`.

There are two sources of pairs:
- Restated: a recorded stream is written as the equivalent unstreamed response. A Responses stream contains it in its
  last event; Gemini's chunks are an array; Anthropic's and Chat's events are folded here, by the rules of their
  documentation and without the library.
- Recorded: two recordings of one question whose reference text and calls are equal. Only members that do not depend on
  the time of the recording are compared.

Other streams are skipped and counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.json.json_values import MalformedJSONError, loads_object, objects, string
from manystream.providers.wire.accumulate import FINAL_TEXT_WINS
from manystream.transport.sse import BARE_LINES, SSEParser

from .corpus import Case
from .exchange import provider_for
from .outcome import arguments_of
from .reference import reference_of
from .replay import counting_ids, is_event_stream, read_body

Chunk = dict[str, Any]


class NotPlainError(Exception):
    """A stream that these folds cannot write as one body."""


@dataclass(slots=True)
class PairReport:
    """The number of compared pairs, and their differences. `not_plain` counts streams that could not be restated."""

    restated: int = 0
    not_plain: int = 0
    recorded: int = 0
    faults: list[str] = field(default_factory=list[str])


def compare_pairs(cases: Sequence[Case]) -> PairReport:
    """Compare all pairs."""
    report = PairReport()
    for case in cases:
        if is_event_stream(case):
            _compare_restated(case, report)
    for first, second in recorded_pairs(cases):
        report.recorded += 1
        if _shape(first) != _shape(second):
            report.faults.append(f"{first.dialect} {first.name} and {second.name}: two shapes of one answer")
    return report


def _compare_restated(case: Case, report: PairReport) -> None:
    provider, dialect = provider_for(case.dialect, case.server), DIALECTS[case.dialect]
    streamed = read_body(case, provider, case.body)
    if streamed.error is not None or streamed.response is None:
        return
    try:
        body = json.dumps(FOLDS[case.dialect](_chunks(case))).encode()
    except NotPlainError:
        report.not_plain += 1
        return
    report.restated += 1
    try:
        whole = dialect.decode(body, provider, counting_ids())
    except ms.ProviderError as error:
        report.faults.append(f"{case.dialect} {case.name}: restated unstreamed, it is an error: {error}")
        return
    for member in parts_that_differ(streamed.response, whole):
        report.faults.append(f"{case.dialect} {case.name}: streamed and unstreamed differ in {member}")


def parts_that_differ(one: ms.Response, other: ms.Response) -> list[str]:
    """Return the members in which two responses differ; arguments are compared as JSON."""
    one, other = _parsed(one), _parsed(other)
    return [name for name in ms.Response.__dataclass_fields__ if getattr(one, name) != getattr(other, name)]


def _parsed(response: ms.Response) -> ms.Response:
    content = [
        replace(block, arguments=json.dumps(arguments_of(block.arguments), sort_keys=True))
        if isinstance(block, ms.ToolCall) else block for block in response.content
    ]  # fmt: skip
    # An unstreamed response has no deltas from which its text could differ.
    warnings = [warning for warning in response.warnings if warning != FINAL_TEXT_WINS]
    return replace(response, content=content, warnings=warnings)


def _chunks(case: Case) -> list[Chunk]:
    parser = SSEParser()
    events = [*parser.feed(case.body), *parser.end()]
    if any(name == BARE_LINES for name, _ in events):
        raise NotPlainError
    chunks: list[Chunk] = []
    for _, data in events:
        if data.strip() == b"[DONE]":
            break
        try:
            chunks.append(loads_object(data))
        except MalformedJSONError:
            raise NotPlainError from None
    return chunks


def _fold_responses(chunks: list[Chunk]) -> object:
    response = chunks[-1].get("response") if chunks else None
    if not isinstance(response, dict) or not response.get("output"):
        raise NotPlainError  # some servers omit the output in the last event
    beside = {name: value for name, value in chunks[-1].items() if name not in ("type", "response", "sequence_number")}
    return {**beside, **response}  # a gateway adds its own members next to the response


def _fold_interactions(chunks: list[Chunk]) -> object:
    interaction: Chunk = {}
    steps: dict[int, Chunk] = {}
    for chunk in chunks:
        kind = chunk.get("event_type")
        if kind == "step.start":
            steps[chunk["index"]] = dict(chunk["step"])
        elif kind == "step.delta" and chunk["index"] in steps and "metadata" not in chunk:
            _fold_step(steps[chunk["index"]], chunk["delta"])
        elif kind in ("interaction.created", "interaction.completed"):
            interaction = {**interaction, **chunk["interaction"]}
        elif kind not in ("interaction.status_update", "step.stop"):
            raise NotPlainError
    if not steps or not chunks or chunks[-1].get("event_type") != "interaction.completed":
        raise NotPlainError
    for step in steps.values():
        pieces = step.pop("pieces", None)
        if pieces:
            step["arguments"] = arguments_of("".join(pieces))
    return {"object": "interaction", **interaction, "steps": list(steps.values())}


def _fold_step(step: Chunk, delta: Chunk) -> None:
    kind = delta.get("type")
    if kind == "arguments_delta":
        step.setdefault("pieces", []).append(delta["arguments"])
    elif kind == "thought_signature":
        step["signature"] = delta["signature"]
    elif kind == "thought_summary":
        step["summary"] = [*(step.get("summary") or []), delta["content"]]
    elif kind == "text_annotation_delta":
        text = step["content"][-1]
        step["content"][-1] = {**text, "annotations": [*text.get("annotations", []), *delta["annotations"]]}
    elif step["type"] == "model_output":
        step["content"] = [*(step.get("content") or []), delta]
    else:
        step.update({name: value for name, value in delta.items() if name != "type"})


def _fold_gemini(chunks: list[Chunk]) -> object:
    return chunks


def _fold_anthropic(chunks: list[Chunk]) -> object:
    message: Chunk = {}
    blocks: dict[int, Chunk] = {}
    texts: dict[tuple[int, str], list[str]] = {}
    for chunk in chunks:
        kind = chunk.get("type")
        if kind == "message_start":
            if message:
                raise NotPlainError
            message = dict(chunk["message"])
            blocks = dict(enumerate(message["content"]))
        elif kind == "content_block_start":
            blocks[chunk["index"]] = dict(chunk["content_block"])
        elif kind == "content_block_delta":
            _fold_anthropic_delta(chunk["index"], chunk["delta"], blocks, texts)
        elif kind == "message_delta":
            message["usage"] = {
                **message["usage"],
                **{k: v for k, v in chunk.get("usage", {}).items() if v is not None},
            }
            message.update(chunk["delta"])
            message.update({k: v for k, v in chunk.items() if k not in ("type", "delta", "usage")})
    for (index, member), pieces in texts.items():
        text = "".join(pieces)
        if member != "input":
            blocks[index][member] = blocks[index].get(member, "") + text
        elif text:
            blocks[index]["input"] = arguments_of(text)
    return {**message, "content": [block for _, block in sorted(blocks.items())]}


ANTHROPIC_DELTAS = {
    "text_delta": ("text", "text"), "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"), "input_json_delta": ("partial_json", "input"),
}  # fmt: skip
"""Delta type → the member with its text, and the block's member to which the text is appended."""


def _fold_anthropic_delta(
    index: int, delta: Chunk, blocks: dict[int, Chunk], texts: dict[tuple[int, str], list[str]]
) -> None:
    kind = delta["type"]
    if kind == "citations_delta":
        blocks[index]["citations"] = [*(blocks[index].get("citations") or []), delta["citation"]]
    elif kind in ANTHROPIC_DELTAS:
        source, member = ANTHROPIC_DELTAS[kind]
        texts.setdefault((index, member), []).append(delta[source])
    else:
        raise NotPlainError


CHAT_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")


def _fold_chat(chunks: list[Chunk]) -> object:
    body: Chunk = {}
    message: Chunk = {"role": "assistant"}
    choice: Chunk = {"index": 0}
    calls: dict[int, Chunk] = {}
    for chunk in chunks:
        choices = chunk.get("choices") or []
        # The first id and model count, and the last value of every other member.
        first = {name: body[name] for name in ("id", "model") if body.get(name)}
        body.update({name: value for name, value in chunk.items() if name != "choices" and value})
        body.update(first)
        if len(choices) > 1 or (choices and (choices[0].get("index") or choices[0].get("message"))):
            raise NotPlainError
        for part in choices:
            _fold_chat_delta(part.get("delta") or {}, message, calls)
            choice.update({k: v for k, v in part.items() if k not in ("delta", "index", "logprobs") and v})
            for name, tokens in (part.get("logprobs") or {}).items():
                if tokens:
                    choice.setdefault("logprobs", {}).setdefault(name, []).extend(tokens)
    if calls:
        message["tool_calls"] = [call for _, call in sorted(calls.items())]
    return {**body, "choices": [{**choice, "message": message}]}


def _fold_chat_delta(delta: Chunk, message: Chunk, calls: dict[int, Chunk]) -> None:
    for name, value in delta.items():
        if not value or name == "role":
            continue
        if name in CHAT_TEXTS and isinstance(value, str):
            message[name] = message.get(name, "") + value
        elif name == "tool_calls":
            for fragment in value:
                _fold_chat_call(fragment, calls)
        else:
            raise NotPlainError


def _fold_chat_call(fragment: Chunk, calls: dict[int, Chunk]) -> None:
    if "index" not in fragment or fragment.keys() - {"index", "id", "type", "function"}:
        raise NotPlainError
    call = calls.setdefault(
        fragment["index"], {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
    )
    call["id"] = call["id"] or fragment.get("id") or ""
    function = fragment.get("function") or {}
    call["function"]["name"] = call["function"]["name"] or function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""


FOLDS: dict[str, Callable[[list[Chunk]], object]] = {
    "openai-responses": _fold_responses, "gemini": _fold_gemini, "gemini-interactions": _fold_interactions,
    "anthropic": _fold_anthropic, "openai-chat": _fold_chat,
}  # fmt: skip


def recorded_pairs(cases: Sequence[Case]) -> Iterator[tuple[Case, Case]]:
    """Yield a streamed and an unstreamed recording of one model's equal answers to one question."""

    def said(case: Case) -> str:
        reference = reference_of(case)
        calls = [(call.name, call.arguments) for call in reference.calls]
        return json.dumps((case.dialect, case.server, reference.model, reference.text, calls), sort_keys=True)

    answers = [case for case in cases if case.status == 200 and _says_something(case.reference)]
    for _, group in groupby(sorted(answers, key=said), key=said):
        same = list(group)
        streamed = [case for case in same if case.stream]
        unstreamed = [case for case in same if not case.stream]
        if streamed and unstreamed:
            yield streamed[0], unstreamed[0]


def _says_something(reference: ms.JSONObject) -> bool:
    return not reference.get("error") and bool(string(reference, "text") or objects(reference, "tool_calls"))


def _shape(case: Case) -> object:
    """Return the members that two recordings of one answer share.

    They are the kinds of blocks, the text, the calls without their ids, the finish reason, and which counts are known.
    """
    reading = read_body(case, provider_for(case.dialect, case.server), case.body)
    response = reading.response or ms.Response()
    usage = response.usage
    return (
        reading.error is None,
        [_block_shape(block) for block in response.content if not isinstance(block, ms.Thinking)],
        (response.finish_reason, response.raw_finish_reason, response.model),
        [usage.input_tokens is None, usage.output_tokens is None, usage.total_tokens is None],
    )


def _block_shape(block: ms.Block) -> object:
    if isinstance(block, ms.ToolCall):
        return block.name, arguments_of(block.arguments), block.complete
    if isinstance(block, ms.Text):
        return block.text, len(block.citations)
    return type(block).__name__
