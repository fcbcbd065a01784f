"""The requests with which a program pauses a server of its own, for new weights, and lets it go on.

vLLM has them if it runs with `VLLM_SERVER_DEV_MODE=1`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..catalog.dialect import WireRequest
from ..catalog.provider import Provider
from ..errors import InvalidRequestError
from ..json.json_values import dumps
from ..wire.wire_head import request_headers


@dataclass(slots=True, frozen=True)
class Control:
    """How one server is paused.

    pause, resume: the paths. modes: a mode → the server's word. in_query: whether it is in the query, or in the body.
    """

    pause: str
    resume: str
    modes: Mapping[str, str]
    in_query: bool


CONTROLS: dict[str, Control] = {
    "vllm-generate": Control("/pause", "/resume", {"abort": "abort", "wait": "wait", "keep": "keep"}, in_query=True),
    "sglang-generate": Control(
        "/pause_generation", "/continue_generation", {"abort": "abort", "keep": "in_place"}, in_query=False
    ),
}
"""Dialect → how its server is paused."""


def control_request(provider: Provider, mode: str | None) -> WireRequest:
    """Return the request that pauses a server, or, without a mode, the one that lets it go on.

    Raises `InvalidRequestError` for a server that has none, and for a mode that it does not have.
    """
    control = CONTROLS.get(provider.profile.dialect_name)
    if control is None:
        text = f"{provider.name!r} cannot be paused: give an ms.VLLMGenerate or an ms.SGLangGenerate of that address"
        raise InvalidRequestError("provider", text)
    headers = request_headers(provider.profile.quirks, None, stream=False)
    if mode is None:
        return WireRequest(control.resume, headers, b"{}")
    word = control.modes.get(mode)
    if word is None:
        raise InvalidRequestError("mode", f"must be one of {', '.join(control.modes)} for this server, not {mode!r}")
    if control.in_query:
        return WireRequest(f"{control.pause}?mode={word}", headers, b"{}")
    return WireRequest(control.pause, headers, dumps({"mode": word}))
