"""A snapshot detects every change of messages."""

from collections.abc import Callable

import pytest

import manystream as ms
from manystream.providers.model.messages import BLOCK_TYPES
from manystream.providers.model.snapshot import MEMBERS, Snapshot


def state(value: ms.JSON = 1) -> ms.ProviderState:
    return ms.ProviderState("google", {"id": value})


def one_of_each() -> list[ms.Block]:
    return [
        ms.Text("t"),
        ms.Text("t", [{"start": 1}], state=state()),
        ms.Thinking("t", "sig"),
        ms.Thinking("t", "sig", state()),
        ms.RedactedThinking("d"),
        ms.RedactedThinking("d", state()),
        ms.ToolCall("a", "f", "{}"),
        ms.ToolCall("a", "f", "{}", state=state()),
        ms.ToolResult("a", "done"),
        ms.ToolResult("a", [ms.Text("done"), ms.Image(url="https://host/a.png", state=state())]),
        ms.Image(data=b"i", media_type="image/png"),
        ms.Image(url="https://host/a.png", state=state()),
        ms.File(data=b"f", media_type="text/plain"),
        ms.File(file_id="f", state=state()),
        ms.ProviderBlock("google", {"type": "x"}),
    ]


def seen(*messages: ms.Message) -> Snapshot:
    found = Snapshot().extended(messages)
    assert found is not None
    return found


OTHERS: dict[str, object] = {
    "citations": [{"start": 2}], "cache_control": ms.CacheControl("5m"), "state": state(2), "complete": False,
    "is_error": True, "data": "other", "content": "other",
}  # fmt: skip
"""Attribute → another value. An attribute that is not here gets a text."""


@pytest.mark.parametrize(
    ("number", "name"), [(number, name) for number, block in enumerate(one_of_each()) for name in MEMBERS[type(block)]]
)
def test_a_change_of_any_member_is_detected(number: int, name: str) -> None:
    block = one_of_each()[number]
    message = ms.Message("assistant", block)
    before = seen(message)
    assert before.matches([message])
    kept = getattr(block, name)
    setattr(block, name, OTHERS.get(name, "other"))
    assert not before.matches([message])
    setattr(block, name, kept)
    assert before.matches([message])


def test_every_member_of_every_block_is_compared() -> None:
    assert set(MEMBERS) == set(BLOCK_TYPES)
    for kind, members in MEMBERS.items():
        assert set(members) == set(kind.__slots__)


IN_PLACE: dict[str, tuple[Callable[[], ms.Block], Callable[[ms.Block], object]]] = {
    "first citation": (lambda: ms.Text("t"), lambda b: b.citations.append({})),
    "citation": (lambda: ms.Text("t", [{"n": 1}]), lambda b: b.citations[0].update(n=2)),
    "state": (lambda: ms.Text("t", state=state()), lambda b: b.state.data.update(id=2)),
    "order of a state": (lambda: ms.Text("t", state=ms.ProviderState("p", {"a": 1, "b": 2})),
        lambda b: b.state.data.update(a=b.state.data.pop("a"))),
    "true for one": (lambda: ms.Text("t", state=state(1)), lambda b: b.state.data.update(id=True)),
    "1.0 for one": (lambda: ms.Text("t", state=state(1)), lambda b: b.state.data.update(id=1.0)),
    "depth of a state": (lambda: ms.Thinking("t", state=state({"a": [{"b": 1}]})),
        lambda b: b.state.data["id"]["a"][0].update(b=2)),
    "provider's own block": (lambda: ms.ProviderBlock("p", {}), lambda b: b.data.update(type="x")),
    "part of a result": (lambda: ms.ToolResult("a", [ms.Text("t")]), lambda b: setattr(b.content[0], "text", "u")),
    "parts of a result": (lambda: ms.ToolResult("a", [ms.Text("t")]), lambda b: b.content.clear()),
    "byte array": (lambda: ms.Image(data=bytearray(b"i"), media_type="image/png"), lambda b: b.data.extend(b"j")),
    "first part of a result": (lambda: ms.ToolResult("a", []), lambda b: b.content.append(ms.Text("t"))),
}  # fmt: skip


@pytest.mark.parametrize("what", IN_PLACE)
def test_a_change_in_place_is_detected(what: str) -> None:
    make, change = IN_PLACE[what]
    block = make()
    message = ms.Message("assistant", block)
    before = seen(message)
    assert before.matches([message])
    change(block)
    assert not before.matches([message])


def test_changed_roles_order_and_numbers_are_detected() -> None:
    def messages() -> list[ms.Message]:
        return [ms.Message.user([ms.Text("a"), ms.Text("b")]), ms.Message.user("c")]

    before = seen(*messages())
    assert before.matches(messages())
    assert not before.matches(messages()[::-1])
    assert not before.matches(messages()[:1])
    assert not before.matches([*messages(), ms.Message.user("d")])
    # The same blocks in the same order, in other messages.
    assert not before.matches([ms.Message.user("a"), ms.Message.user([ms.Text("b"), ms.Text("c")])])
    changed = messages()
    changed[0].role = ms.Role.ASSISTANT
    assert not before.matches(changed)
    # Equal to the role, but of another type.
    changed[0].role = "user"  # type: ignore[assignment]
    assert not before.matches(changed)


def test_a_block_of_another_type_is_detected() -> None:
    message = ms.Message.user(ms.Image(url="u"))
    before = seen(message)
    message.content[0] = ms.File(url="u")
    assert not before.matches([message])


class Loud(str):
    """A text of the caller's own type."""


@pytest.mark.parametrize(
    "block",
    [
        ms.Text(Loud("t")),
        ms.Text("t", state=state(object())),  # type: ignore[arg-type]
        ms.Text("t", state=state(Loud("x"))),
    ],
)
def test_a_value_that_cannot_be_kept_exactly_has_no_snapshot(block: ms.Block) -> None:
    """An object of the caller's may return another value at each access."""
    assert Snapshot().extended([ms.Message("assistant", block)]) is None


def test_a_value_that_becomes_unsnapshottable_is_detected() -> None:
    message = ms.Message.assistant(ms.Text("t", state=state()))
    before = seen(message)
    message.content[0].state.data["id"] = object()  # type: ignore[union-attr]
    assert not before.matches([message])


def test_extended_does_not_change_the_snapshot() -> None:
    first, second = ms.Message.user("a"), ms.Message.assistant("b")
    before = seen(first)
    after = before.extended([second])
    assert after is not None
    assert before.matches([first])
    assert after.matches([first, second])
    assert (len(before), len(after)) == (1, 2)
