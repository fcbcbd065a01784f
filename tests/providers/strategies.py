"""Hypothesis strategies for the content of conversations, shared by the tests of rows, histories and the store."""

from hypothesis import strategies as st

import manystream as ms

# SQLite and JSON accept any text without lone surrogates. No decoder of the library returns text with one either.
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)
SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS
JSON_VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2), max_leaves=4
)
OBJECTS: st.SearchStrategy[ms.JSONObject] = st.dictionaries(TEXTS, JSON_VALUES, max_size=3)
STATES = st.none() | st.builds(ms.ProviderState, NAMES, OBJECTS)
MARKS = st.none() | st.builds(ms.CacheControl, st.sampled_from(["5m", "1h", None]))
SOURCES = st.sampled_from(
    [{"data": b"\x00\xff", "media_type": "image/png"}, {"data": b"", "media_type": "application/pdf"},
    {"url": "https://host/a.png"}, {"file_id": "file-1", "media_type": None}]
)  # fmt: skip

texts = st.builds(ms.Text, TEXTS, st.lists(OBJECTS, max_size=2), MARKS, STATES)
thinking = st.builds(ms.Thinking, TEXTS, st.none() | TEXTS, STATES)
redacted = st.builds(ms.RedactedThinking, TEXTS, STATES)
calls = st.builds(ms.ToolCall, NAMES, NAMES, TEXTS | st.just('{"a": 1}'), st.booleans(), STATES, MARKS)
images = st.builds(
    lambda source, detail, mark, state: ms.Image(**source, detail=detail, cache_control=mark, state=state), SOURCES,
    st.sampled_from([None, "auto", "low", "high"]), MARKS, STATES,
)  # fmt: skip
files = st.builds(
    lambda source, name, mark, state: ms.File(**source, name=name, cache_control=mark, state=state), SOURCES,
    st.none() | TEXTS, MARKS, STATES,
)  # fmt: skip
plain_texts = st.builds(ms.Text, TEXTS, cache_control=MARKS, state=STATES)
results = st.builds(
    ms.ToolResult, NAMES, TEXTS | st.lists(plain_texts | images | files, max_size=2), st.booleans(), MARKS
)
provider_blocks = st.builds(ms.ProviderBlock, NAMES, OBJECTS)

blocks = texts | thinking | redacted | calls | images | files | results | provider_blocks
messages = st.builds(ms.Message, st.sampled_from(ms.Role), st.lists(blocks, max_size=4), OBJECTS)
conversations = st.builds(ms.Conversation, st.lists(messages, max_size=4))
