"""Describe the library's public names and signatures as text: `python -m tests.public_api` writes `public_api.txt`.

Programs depend on the names in that file. A line that is removed, or changed in another way than by a new parameter
with a default, breaks programs. It needs a new major version and an entry in the changelog.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import re
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path

WIDTH = 120
"""The maximum length of a signature on one line. A longer one has one parameter per line, for readable diffs."""

SNAPSHOT = Path(__file__).with_suffix(".txt")

HOMES: dict[str, tuple[str, ...]] = {
    "manystream": (),
    "manystream.engine": (),
    "manystream.batch": (),
    "manystream.cost": (
        "Cost", "CostExtraError", "PriceTable", "PriceTableError", "Unpriced", "check_installed", "price",
        "price_response", "price_usage",
    ),
    "manystream.httpx": ("Transport",),
    "manystream.httpx2": ("Transport",),
    "manystream.otel": ("OpenTelemetryObserver",),
    "manystream.portal": ("Portal", "PortalCall", "PortalMap", "PortalRecording", "PortalStream", "open_portal"),
    "manystream.providers.catalog.dialect": (
        "Dialect", "StoredAnswers", "StreamMachine", "WireRequest", "bearer_token",
    ),
    "manystream.statistics": (),
    "manystream.store": ("Row", "RowError", "message_from_row", "rows_from_message"),
    "manystream.tokens": (),
    "manystream.providers.history": (),
    "manystream.providers.history.converter": ("ChunkView", "HistoryConverter"),
    "manystream.providers.anthropic.converter": ("AnthropicConverter",),
    "manystream.providers.gemini.converter": ("GeminiConverter",),
    "manystream.providers.gemini_interactions.converter": ("InteractionsConverter",),
    "manystream.providers.gemini.errors": ("parse_error",),
    "manystream.providers.gemini.finish": ("finish_reason",),
    "manystream.providers.gemini.response": ("new_tool_call_id", "parse_response"),
    "manystream.providers.openai.chat.converter": ("ChatConverter",),
    "manystream.providers.openai.responses.converter": ("ResponsesConverter",),
    "manystream.providers.openai.legacy": (),
    "manystream.ray": (),
    "manystream.serve": (),
    "manystream.simulator": (
        "Simulator", "SimulatorError", "SimulatorOptions", "open_simulator", "open_simulator_thread",
    ),
}  # fmt: skip
"""Module → the names in it that are public; none: those that it exports."""

HANDED_OUT = {
    "manystream.Call", "manystream.Engine", "manystream.EventStream", "manystream.Portal", "manystream.Recording",
    "manystream.CallMap", "manystream.portal.PortalMap",
    "manystream.portal.PortalCall", "manystream.portal.PortalRecording", "manystream.portal.PortalStream",
    "manystream.serve.Gateway", "manystream.serve.Slot", "manystream.serve.Trace", "manystream.serve.TracedCall",
}  # fmt: skip
"""Classes that programs get objects of, and make none of: how they are made is not public."""

OFFERED: dict[str, tuple[str, ...]] = {
    "manystream.providers.catalog.dialect.StreamMachine": (
        "answer", "end", "ended", "fail", "feed", "provider", "response", "take_end", "take_event",
    ),
    "manystream.serve.Gateway": ("base_url", "close", "drain", "host", "port", "slot", "slots"),
    "manystream.serve.Slot": (
        "base_url", "calls", "cost", "end", "ended", "extra_body", "key", "name", "priority", "tags", "trace",
    ),
    "manystream.serve.Trace": ("calls", "conversations"),
    "manystream.serve.TracedCall": (
        "body", "client_left", "completion", "continues", "dialect", "fork", "model", "number", "prefix", "request",
        "response", "shared", "started", "stream", "target", "to_json", "tokens",
    ),
}  # fmt: skip
"""Class → the members that are for programs, where the engine itself uses others."""

PROTOCOLS = {"__aenter__", "__aexit__", "__enter__", "__exit__", "__aiter__", "__anext__", "__iter__", "__next__"}
"""What makes a class a block or an iterator, in a line of its own."""


def describe() -> str:
    """Return the whole text."""
    lines: list[str] = []
    described: dict[int, str] = {}
    for home, chosen in HOMES.items():
        module = importlib.import_module(home)
        for name in chosen or _exported(home):
            value = getattr(module, name)
            full = f"{home}.{name}"
            known = described.setdefault(id(value), full)
            lines += [f"{full} is {known}"] if known != full else list(_described(full, value))
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _exported(home: str) -> list[str]:
    """`__all__`, else what is imported as itself (`from .x import name as name`)."""
    module = importlib.import_module(home)
    listed: list[str] | None = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(name for name in listed if not name.startswith("__"))
    source = inspect.getsource(module)
    return sorted({name for name, _ in re.findall(r"^from \.[\w.]* import (\w+) as (\1)$", source, re.MULTILINE)})


@cache
def _aliases(folder: str) -> dict[str, str]:
    """Return the type aliases of the sources below a folder: name → what it stands for, as it is written."""
    found: dict[str, str] = {}
    for path in sorted((Path(__file__).resolve().parent.parent / folder).rglob("*.py")):
        for name, text in re.findall(r"^ *(\w+): TypeAlias = (.+)$", path.read_text("utf-8"), re.MULTILINE):
            found[name] = text.strip('"')
    return found


def _alias(name: str) -> str:
    """Return what the type alias of this full name stands for; empty if there is none."""
    home, _, last = name.rpartition(".")
    folders = ("engine", "providers") if home == "manystream" else (home.replace(".", "/"),)
    return next((_aliases(folder)[last] for folder in folders if last in _aliases(folder)), "")


def _described(name: str, value: object) -> Iterator[str]:
    alias = "" if isinstance(value, type) and value is not object else _alias(name)
    if alias:
        yield f"{name}: {alias}"
    elif isinstance(value, type):
        yield from _class(name, value)
    elif (callable(value) and hasattr(value, "__wrapped__")) or inspect.isfunction(value):
        yield from _signature(name, value)
    else:
        yield f"{name}: {value!r}".replace("manystream.providers.", "")


def _class(name: str, owner: type) -> Iterator[str]:
    bases = [base.__name__ for base in owner.__bases__ if base is not object and not base.__name__.startswith("_")]
    yield f"class {name}" + (f"({', '.join(bases)})" if bases else "")
    if issubclass(owner, enum.Enum):
        for member in owner:
            yield f"    {member.name} = {member.value!r}"
        return
    if typing.is_typeddict(owner):
        yield from (f"    {field}: {kind.__forward_arg__}" for field, kind in owner.__annotations__.items())
        return
    if getattr(owner, "_is_protocol", False):
        yield from (f"    {field}: {kind}" for field, kind in owner.__annotations__.items())
    elif name not in OFFERED and name not in HANDED_OUT:
        yield from _signature("    __init__", owner)
    offered = OFFERED.get(name) or sorted(_members(owner))
    for member in offered:
        yield from _member(owner, member)
    protocols = sorted(PROTOCOLS & set(dir(owner)))
    if protocols:
        yield f"    {' '.join(protocols)}"


def _members(owner: type) -> set[str]:
    fields = {field.name for field in dataclasses.fields(owner)} if dataclasses.is_dataclass(owner) else set[str]()
    inherited = set(dir(Exception)) if issubclass(owner, Exception) else set(dir(object))
    return {name for name in dir(owner) if not name.startswith("_")} - fields - inherited


def _member(owner: type, name: str) -> Iterator[str]:
    value = inspect.getattr_static(owner, name)
    if isinstance(value, property):
        getter = value.fget
        assert getter is not None
        yield f"    {name}: {_kind(inspect.signature(getter).return_annotation)}"
    elif isinstance(value, (staticmethod, classmethod)) or inspect.isfunction(value):
        prefix = "async " if inspect.iscoroutinefunction(value) else ""
        yield from _signature(f"    {prefix}{name}", getattr(owner, name))
    elif inspect.ismemberdescriptor(value) or inspect.isgetsetdescriptor(value):
        yield f"    {name}"
    else:
        yield f"    {name} = {value!r}"


def _signature(name: str, function: object) -> Iterator[str]:
    assert callable(function)
    try:
        signature = inspect.signature(function)
    except ValueError:  # an exception's, which takes anything
        return
    parameters = [parameter for parameter in signature.parameters.values() if parameter.name != "self"]
    parts: list[str] = []
    by_name = False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not by_name:
            by_name = True
            parts.append("*")
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        default = "" if parameter.default is parameter.empty else f" = {_default(parameter.default)}"
        parts.append(f"{star}{parameter.name}: {_kind(parameter.annotation)}{default}")
    result = "" if name.endswith("__init__") else f" -> {_kind(signature.return_annotation)}"
    line = f"{name}({', '.join(parts)}){result}"
    if len(line) <= WIDTH:
        yield line
        return
    indent = " " * (len(name) - len(name.lstrip()))
    yield f"{name}("
    yield from (f"{indent}    {parameter}," for parameter in parts)
    yield f"{indent}){result}"


def _kind(annotation: object) -> str:
    if annotation is inspect.Signature.empty:
        return "…"
    return annotation.strip("'\"") if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _default(value: object) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    return "…" if " at 0x" in repr(value) or repr(value) == "<factory>" else repr(value)


if __name__ == "__main__":
    SNAPSHOT.write_text(describe(), "utf-8")
