"""The path of a request: its method, its model, and the base URL."""

from __future__ import annotations

import pytest

import manystream as ms
from manystream.providers.gemini.path import request_path
from tests.providers.gemini.sent import wire


def test_a_stream_differs_in_path_and_accept_only() -> None:
    request, streamed = wire(), wire(stream=True)
    assert streamed.path == "/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse"
    assert streamed.headers[1] == ("accept", "text/event-stream")
    assert streamed.body == request.body


@pytest.mark.parametrize(
    ("base_url", "path"),
    [
        ("https://generativelanguage.googleapis.com", "/v1beta/models/m"),
        ("https://generativelanguage.googleapis.com/", "/v1beta/models/m"),
        ("https://generativelanguage.googleapis.com/v1beta", "/models/m"),
        ("https://generativelanguage.googleapis.com/v1", "/models/m"),
        ("https://generativelanguage.googleapis.com/v1alpha/", "/models/m"),
        ("https://gateway.example/google/v1beta2", "/models/m"),
        ("https://gateway.example/v1/google", "/v1beta/models/m"),
        ("http://127.0.0.1:8080", "/v1beta/models/m"),
        ("https://aiplatform.googleapis.com", "/v1/publishers/google/models/m"),
        ("https://aiplatform.googleapis.com/v1beta1", "/publishers/google/models/m"),
        ("https://aiplatform.googleapis.com/v1/publishers/google", "/models/m"),
        ("https://us-central1-aiplatform.googleapis.com/v1/projects/p/locations/l", "/publishers/google/models/m"),
        ("https://us-central1-aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/google", "/models/m"),
    ],
)
def test_the_path_continues_any_base_url(base_url: str, path: str) -> None:
    assert request_path(base_url, "m", stream=False) == path + ":generateContent"
    assert request_path(base_url, "models/m", stream=False) == path + ":generateContent"


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("gemini-2.5-pro@001", "/v1beta/models/gemini-2.5-pro@001"),
        ("a b/c?d#e%", "/v1beta/models/a%20b%2Fc%3Fd%23e%25"),
        ("größe", "/v1beta/models/gr%C3%B6%C3%9Fe"),
        ("tunedModels/my-model", "/v1beta/tunedModels/my-model"),
        ("publishers/google/models/m", "/v1beta/models/m"),
    ],
)
def test_model_names_are_encoded_for_the_path(model: str, path: str) -> None:
    assert request_path("https://host", model, stream=False) == path + ":generateContent"


def test_a_tuned_model_on_vertex_is_a_resource_of_its_own() -> None:
    base = "https://us-central1-aiplatform.googleapis.com"
    endpoint = "projects/p/locations/us-central1/endpoints/1"
    assert request_path(base, endpoint, stream=False) == f"/v1/{endpoint}:generateContent"
    assert request_path(base + "/v1beta1", endpoint, stream=False) == f"/{endpoint}:generateContent"
    project = base + "/v1/projects/p/locations/us-central1"
    assert request_path(project, "endpoints/1", stream=False) == "/endpoints/1:generateContent"


@pytest.mark.parametrize("model", ["models/..", "models/../../x", "models/", "tunedModels/", "."])
def test_a_model_name_cannot_change_the_path(model: str) -> None:
    with pytest.raises(ms.InvalidRequestError, match="model: "):
        request_path("https://host", model, stream=False)
