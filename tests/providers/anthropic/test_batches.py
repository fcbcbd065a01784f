"""Batches of Anthropic's interface."""

import manystream as ms
from manystream.providers.catalog.registry import dialect_of
from tests.providers.catalog.test_batches import PROVIDERS, interface


def test_anthropic_sends_the_headers_of_all_lines_of_a_batch() -> None:
    kind = interface("anthropic")
    request = ms.Request("m", [ms.Message.user("Hi")], extra_headers={"anthropic-beta": "files-1"})
    wire = dialect_of(PROVIDERS["anthropic"].profile).encode(request, "m", PROVIDERS["anthropic"], stream=False)
    group = kind.group("m", wire)
    assert group is not None
    assert ("anthropic-beta", "files-1") in kind.create("k", [b"{}"], None, group).headers
    assert ("anthropic-version", "2023-06-01") in kind.read("b").headers
