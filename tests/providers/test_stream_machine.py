"""What every stream machine does with the last event of a cut body, with the end, and with deltas after a template."""

from __future__ import annotations

import pytest

import manystream as ms
from manystream.providers.openai.chat import DIALECT
from manystream.providers.wire.delta_template import DeltaTemplate, ValuesTemplate, VolatileMembers, learn, shared_bytes
from manystream.providers.wire.dialect import NO_TARGET, StreamMachine, ValuesTarget, WireRequest, bearer_token


def machine() -> StreamMachine:
    return DIALECT.machine(ms.OpenAIChat("k", "https://h.example/v1"), lambda: "id")


def chunk(text: str, reason: str = "null") -> bytes:
    body = '{"model":"m","id":"r","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":%s}]}'
    return (body % (text, reason)).encode()


def test_the_last_event_of_a_cut_body_counts_only_if_it_is_whole() -> None:
    whole = machine()
    assert list(whole.feed_last("", chunk("a"))) == [ms.Start("m", "r"), ms.TextDelta(0, "a")]
    assert list(whole.feed_last("", chunk("b")[:-1])) == []
    assert list(whole.feed_last("", chunk("c")[:40])) == []
    finished = machine()
    finished.feed("", chunk("a", '"stop"'))
    (done,) = finished.feed_last("", b" [DONE]")
    assert done.type is ms.EventType.DONE
    assert list(machine().feed_last("", b"[DONE")) == []


def test_nothing_follows_the_terminal_event() -> None:
    ended = machine()
    error = ms.ProviderError("m", category=ms.ErrorCategory.SERVER)
    assert list(ended.fail(error)) == [ms.Error(error)]
    assert ended.ended
    assert list(ended.fail(error)) == list(ended.end()) == list(ended.feed("", chunk("a"))) == []


def test_a_delta_without_a_template_is_a_defect() -> None:
    with pytest.raises(AssertionError, match=r"^a delta was accepted without a template$"):
        NO_TARGET.accept("a")
    assert (NO_TARGET.pieces, machine().matched, machine().target) == ([], False, NO_TARGET)


class Block:
    def __init__(self) -> None:
        self.pieces: list[str] = ["a"]

    def accept(self, delta: object, /) -> ms.Event:
        self.pieces.append(str(delta))
        return ms.TextDelta(0, str(delta))


def test_values_beside_the_text_are_read() -> None:
    seen: list[tuple[str, ms.JSON, bytes]] = []
    block = Block()
    target = ValuesTarget(block, lambda name, value, raw: seen.append((name, value, raw)), [(2, "usage"), (0, "n")])
    assert target.accept(("b", [1, "b", {"t": 3}], [b"1", b'"b"', b'{"t": 3}'])) == ms.TextDelta(0, "b")
    assert seen == [("usage", {"t": 3}, b'{"t": 3}'), ("n", 1, b"1")]
    assert target.pieces is block.pieces
    assert target.pieces == ["a", "b"]


# --- templates ---

PATH = ("d", "t")
NONE = VolatileMembers()
SOME = VolatileMembers(counter="n", padding=("p", "q"), values=(("u",), ("l", 0)))


def text_template(start: bytes, to_text: bytes, to_padding: bytes, end: bytes) -> DeltaTemplate:
    return DeltaTemplate("e", True, start, to_text, to_padding, end)


LEARNED: list[tuple[bytes, ms.JSON, VolatileMembers, object]] = [
    (b'{"d":{"t":"x"}}', {"d": {"t": "x"}}, NONE, text_template(b'{"d":{"t":', b"", b"", b"}}")),
    (b'{"n":12,"d":{"t":"x"},"p":"ab9"}', {"n": 12, "d": {"t": "x"}, "p": "ab9"}, SOME,
        text_template(b'{"n":', b'"d":{"t":', b'},"p":"', b'"}')),
    (b'{"n": 0,"d":{"t":"x"},"q": "Z"}', {"n": 0, "d": {"t": "x"}, "q": "Z"}, SOME,
        text_template(b'{"n": 0,"d":{"t":', b"", b'},"q": "', b'"}')),
    (b'{"d":{"t":"\\u00e9"}}', {"d": {"t": "é"}}, NONE, text_template(b'{"d":{"t":', b"", b"", b"}}")),
    (b'{"d":{"t":"x","o":"x"}}', {"d": {"t": "x", "o": "x"}}, NONE, None),
    (b'{"d":{"t":"x"}}', {"d": {"t": "y"}}, NONE, None),
    (b'{"d":{"t":"x"}}', {"d": ["x"]}, NONE, None),
    (b'{"o":"\\"","d":{"t":"x"}}', {"o": '"', "d": {"t": "x"}}, NONE,
        text_template(b'{"o":"\\"","d":{"t":', b"", b"", b"}}")),
    (b'{"d":{"t":"x"},"u":{"a":1},"n":3}', {"d": {"t": "x"}, "u": {"a": 1}, "n": 3}, SOME,
        ValuesTemplate("e", True, b'{"d":{"t":', (b'},"u":', b',"n":'), b"}", 0, ((1, "u"),))),
    (b'{"l":[5],"d" : {"t" : "x"}}', {"l": [5], "d": {"t": "x"}}, SOME, None),
    (b'{"u": true, "d": {"u": "x", "t": "u"}}', {"u": True, "d": {"u": "x", "t": "u"}}, SOME,
        ValuesTemplate("e", True, b'{"u": ', (b', "d": {"u": "x", "t": ',), b"}}", 1, ((0, "u"),))),
]  # fmt: skip


@pytest.mark.parametrize(("data", "value", "volatile", "template"), LEARNED)
def test_the_template_of_a_delta(data: bytes, value: ms.JSON, volatile: VolatileMembers, template: object) -> None:
    text = "é" if b"u00e9" in data else "u" if b'"t": "u"' in data else "x"
    assert learn("e", data, value, PATH, text, volatile) == template


MATCHED: list[tuple[bytes, str | None]] = [
    (b'{"n":7,"d":{"t":"y"},"p":"k0"}', "y"),
    (b'{"n":70,"d":{"t":"\\u00e9\\n"},"p":"k"}', "é\n"),
    (b'{"n":7,"d":{"t":""},"p":"k"}', ""),
    (b'{"n":07,"d":{"t":"y"},"p":"k"}', None),
    (b'{"n":0,"d":{"t":"y"},"p":"k"}', None),
    (b'{"n":-7,"d":{"t":"y"},"p":"k"}', None),
    (b'{"n":,"d":{"t":"y"},"p":"k"}', None),
    (b'{"m":7,"d":{"t":"y"},"p":"k"}', None),
    (b'{"n":7,"d":{"s":"y"},"p":"k"}', None),
    (b'{"n":7,"d":{"t":"y"},"p":"k-"}', None),
    (b'{"n":7,"d":{"t":"y"},"p":""}', None),
    (b'{"n":7,"d":{"t":"y"},"p":"k"]', None),
    (b'{"n":7,"d":{"t":5},"p":"k"}', None),
    (b'{"n":7,"d":{"t":"y","o":1},"p":"k"}', None),
    (b'{"n":7,"d":{"t":"\\ud83d"},"p":"k"}', None),
]


@pytest.mark.parametrize(("data", "text"), MATCHED)
def test_what_matches_a_template(data: bytes, text: str | None) -> None:
    template = text_template(b'{"n":', b'"d":{"t":', b'},"p":"', b'"}')
    assert template.match(data, template.start, template.end) == text
    framed = b"data: " + data + b"\n\n"
    assert template.match(framed, b"data: " + template.start, template.end + b"\n\n") == text


VALUES: list[tuple[bytes, object]] = [
    (b'{"t":"y","u":1}', ("y", ["y", 1], [b'"y"', b"1"])),
    (b'{"t":"y","u":{"a": [1, null]}}', ("y", ["y", {"a": [1, None]}], [b'"y"', b'{"a": [1, null]}'])),
    (b'{"t":"y","u":"x,\\"u\\":1"}', ("y", ["y", 'x,"u":1'], [b'"y"', b'"x,\\"u\\":1"'])),
    (b'{"t":"","u":1}', None),
    (b'{"t":5,"u":1}', None),
    (b'{"t":"y","u":}', None),
    (b'{"t":"y","u":\n1}', None),
    (b'{"t":"y","u":\r1}', None),
    (b'{"t":"y","v":1}', None),
    (b'{"s":"y","u":1}', None),
    (b'{"t":"y","u":1]', None),
]


@pytest.mark.parametrize(("data", "found"), VALUES)
def test_what_matches_a_template_of_values(data: bytes, found: object) -> None:
    template = ValuesTemplate("", True, b'{"t":', (b',"u":',), b"}", 0, ((1, "u"),))
    result = template.match(data, template.start, template.end)
    assert (result if result is None else (result[0], list(result[1]), list(result[2]))) == found
    three = ValuesTemplate("", True, b'{"t":', (b',"u":', b',"w":'), b"}", 0, ((1, "u"), (2, "w")))
    longer = data[:-1] + b',"w":[2]' + data[-1:]
    result = three.match(longer, three.start, three.end)
    if found is None:
        assert result is None
    else:
        assert result is not None
        assert (result[0], result[1][2], result[2][2]) == ("y", [2], b"[2]")


def test_short_equal_bytes_are_one_object() -> None:
    assert shared_bytes(b"x" * 1024, True) is shared_bytes(bytes([120] * 1024), True)
    long = bytes([120] * 1025)
    assert shared_bytes(long, True) is long
    assert shared_bytes(long[:9], False) is not shared_bytes(long[:9], False)


# --- dialects and their requests ---


def test_a_request_on_the_wire_has_these_defaults() -> None:
    assert WireRequest("/p", [], b"") == WireRequest("/p", [], b"", "POST", [], None, frozenset())


def test_the_key_is_a_bearer_token_without_a_profile_s_header() -> None:
    assert bearer_token(ms.OpenAIChat(), "k") == [("authorization", "Bearer k")]
    assert bearer_token(ms.OpenAIChat(), "") == []
    row = ms.Profile(name="p", dialect="openai-chat", base_url="", quirks=ms.Quirks(auth_header="api-key"))
    assert bearer_token(ms.OpenAIChat(profile=row), "k") == [("api-key", "k")]
    row = ms.Profile(name="p", dialect="openai-chat", base_url="", quirks=ms.Quirks(auth_header="Authorization"))
    assert bearer_token(ms.OpenAIChat(profile=row), "k") == [("Authorization", "Bearer k")]


MEMBERS = {"name": "d", "encode": print, "decode": print, "machine": print}


@pytest.mark.parametrize("name", ["name", "encode", "decode", "machine", "auth_headers", "decode_error"])
def test_a_dialect_is_made_of_a_name_and_functions(name: str) -> None:
    ms.Dialect(**MEMBERS)  # type: ignore[arg-type]
    for wrong in (" ", "", None, 7):
        with pytest.raises(ms.InvalidRequestError) as caught:
            ms.Dialect(**{**MEMBERS, name: wrong})  # type: ignore[arg-type]
        kind = "text that is not empty" if name == "name" else "a function"
        assert str(caught.value) == f"Dialect.{name}: must be {kind}, not {wrong!r}"
        assert caught.value.field == f"Dialect.{name}"
    assert repr(ms.Dialect(**MEMBERS)) == "Dialect(name='d')"  # type: ignore[arg-type]
