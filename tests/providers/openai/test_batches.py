"""Batches of OpenAI's interface and of those that copy it."""

import json

import pytest

from manystream.providers.json.json_values import loads_object
from tests.providers.catalog.test_batches import UPLOADS, one_line, one_wire


@pytest.mark.parametrize("name", UPLOADS)
def test_lines_are_uploaded_as_a_file_found_by_its_name(name: str) -> None:
    kind, line, _ = one_line(name)
    path, parts, answer, listed, created = UPLOADS[name]
    assert kind.files is not None
    upload = kind.upload(kind.files, "k", [line, line])
    assert upload.path == path
    assert all(part in upload.body for part in parts), upload.body
    assert upload.body.endswith(b"\r\n\r\n" + line + b"\n" + line + b"\n\r\n--manystream-k--\r\n")
    assert dict(upload.headers)["content-type"].endswith("; boundary=manystream-k")
    file = kind.file_id(kind.files, loads_object(answer))
    assert file == kind.file_of(kind.files, loads_object(listed), "k")
    assert kind.file_of(kind.files, loads_object(listed), "other") is None
    group = kind.group("m", one_wire(name))
    assert group is not None
    assert created in kind.create("k", [], file, group).body
    delete = kind.delete_file(kind.files, file or "")
    assert (delete.method, delete.path.endswith("f1"), delete.body) == ("DELETE", True, b"")


def test_openrouter_reads_the_requests_last() -> None:
    kind, line, _ = one_line("openrouter")
    group = kind.group("m", one_wire("openrouter"))
    assert group is not None
    body = kind.create("k", [line, line], None, group).body
    assert list(json.loads(body)) == ["endpoint", "model", "completion_window", "requests"]
