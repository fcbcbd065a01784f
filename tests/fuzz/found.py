"""The findings of fuzzing, each with its input and the defect. They are run as tests."""

from tests.fuzz.seeds import CUT, RESPONSES

_FRAMES = RESPONSES[0].split("\n\n")
_TWICE = "\n\n".join([*_FRAMES[:3], *_FRAMES[2:]])  # the summary's only delta is sent twice

_CHOICES = (
    'data: {"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}},'
    ' {"index": 0, "delta": [{"reasoning_content": "hm"}]}]}\n\n'
)

FOUND: list[tuple[str, bytes, str]] = [
    ("chunks", CUT + b"3128FFFFFFFFFFFFFFF\r\nx", "a size of nineteen digits is refused, where h11 waits"),
    ("chunks", CUT + b"FFFFFFFFFFFFFFFF\r\nx", "a size that no answer has is refused, where h11 waits"),
    ("responses", b"\xc2HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: cl\xcc\xccContent-Length: 9\r\n\r\nhello",
        "stray bytes that come after the end was seen close an idle connection"),
    ("openai-chat", CUT + _CHOICES.encode(), "a choice before a malformed one in the same chunk is in the answer only"),
    ("responses",
        b"@HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nTransfer-Encoding: ch%nked\r\n\r\n",
        "framing fields in trailers are discarded, where h11 refuses the response"),
    ("responses", b"@HTTP/1.1 100 Continue\r\n\r\nHTTP/2.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "another version of HTTP after an informational response"),
    ("openai-responses", CUT + _TWICE.encode(), "a whole text that contradicts its pieces: events have the pieces"),
    ("secrets", b'nul"ping"l?<op\\&quot;Ef3&amp;gh4&l', "a backslash before an HTML entity"),
    ("secrets", b":Ef3&ampgh4&lt", "HTML reads an entity without its semicolon, as at the end of a cut text"),
    ("secrets",
        b'?{\\\\\\:"error": {"message": "b{"ad key sk-pr\\oj/Ab2+cd2\\"Ef3&gh4<Ij5>kl6\'Mn7=valid_api_key", "co',
        "a stray backslash in a damaged body divides the key into two parts"),
    (
        "anthropic",
        CUT + b'data: {"type": "content_block_start", "index": 0, "content_block": {"type": ["text"], "text": ""}}\n\n',
        "the type of a block that is a list is no known type",
    ),
]  # fmt: skip
"""Target, input, defect."""
