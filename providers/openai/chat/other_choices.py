"""Writes an answer in the wire's unstreamed form, for the choices of an answer other than its first.

Such a choice is kept raw, in `Response.provider_data`.
"""

from __future__ import annotations

import base64

from ...json.json_values import JSON, JSONObject, mapping, objects, string
from ...model.messages import File, Image, ProviderBlock, Text, Thinking, ToolCall
from ...model.response import Response
from .images import data_url
from .reasoning import DETAILS, TEXT_MEMBERS, is_plain_text, state_members


def wire_choice(index: int, response: Response, finish: str | None, reasoning_member: str | None) -> JSONObject:
    """Return the choice, with the members that are in the answer's `provider_data`.

    index: the choice's index.
    response: the answer.
    finish: the finish reason as received, or None.
    reasoning_member: the member that the answer's thinking came in, or None.
    """
    message: JSONObject = {"role": "assistant", "content": _content(response)}
    if response.thinking:
        member = reasoning_member if reasoning_member in TEXT_MEMBERS else "reasoning_content"
        message[member] = response.thinking
    message.update(_state(response))
    if response.refusal:
        message["refusal"] = response.refusal
    if response.tool_calls:
        message["tool_calls"] = [_call(call) for call in response.tool_calls]
    for block in response.content:
        if type(block) is Image:
            _list(message, "images").append({"type": "image_url", "image_url": {"url": _url(block)}})
        elif type(block) is File:
            message["audio"] = _audio(block)
    choice: JSONObject = {"index": index, "message": message, "finish_reason": finish, **response.provider_data}
    if response.tokens is not None and response.tokens.ids:
        choice["token_ids"] = [*response.tokens.ids]
    return choice


def _content(response: Response) -> JSON:
    """Return the text, or the list of parts if there are others than text."""
    if all(type(block) is Text and not block.citations for block in response.content):
        return response.text or None
    parts: list[JSON] = []
    plain = True
    for block in response.content:
        if type(block) is Text and block.text:
            parts.append({"type": "text", "text": block.text})
            references = [citation for citation in block.citations if string(citation, "type") == "reference"]
            parts.extend(references)
            plain = plain and not references
        elif type(block) is ProviderBlock:
            parts.append(block.data)
            plain = False
    return response.text or None if plain else parts


def _state(response: Response) -> JSONObject:
    """Return what the thinking has besides its text. Details that are that text are left out."""
    members: JSONObject = {}
    for block in response.content:
        if type(block) is Thinking:
            members.update(_data(block))
    if not members:
        return members
    members = state_members(members)
    if DETAILS in members and all(map(is_plain_text, objects(members, DETAILS))):
        del members[DETAILS]
    return members


def _data(block: Thinking | ToolCall | File) -> JSONObject:
    return {} if block.state is None else block.state.data


def _call(call: ToolCall) -> JSONObject:
    state = _data(call)
    if state.get("type") == "custom":
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    function: JSONObject = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function, **state_members(state)}


def _audio(block: File) -> JSONObject:
    return {**mapping(_data(block), "audio"), "data": base64.b64encode(block.data or b"").decode()}


def _url(block: Image) -> str:
    return block.url if block.url is not None else data_url(block.data or b"", block.media_type or "image/png")


def _list(message: JSONObject, name: str) -> list[JSON]:
    """Return the message's list of this name, made if it has none."""
    value = message.setdefault(name, [])
    assert type(value) is list
    return value
