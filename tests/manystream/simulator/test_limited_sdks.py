"""The official SDKs read the simulator's refusals as real rate limits, and wait as long as their hints say."""

import json
from collections.abc import Iterator

import anthropic
import openai
import pytest
from google import genai
from google.genai import errors, types

from manystream.simulator import KnobError, Limit, Simulator, open_simulator_thread

from .raw_client import ask, connected, get, request_bytes, statistics

FEW = "requests-per-minute=2"
"""Two calls at once, then one in half a minute."""


@pytest.fixture
def limited() -> Iterator[Simulator]:
    """A simulator with a limit of requests."""
    with open_simulator_thread("events=4", limits=[FEW]) as simulator:
        yield simulator


def chat(client: openai.OpenAI, count: int) -> None:
    for _ in range(count):
        client.chat.completions.create(model="sim-text", messages=[{"role": "user", "content": "Hello."}])


def message(client: anthropic.Anthropic, count: int) -> None:
    for _ in range(count):
        client.messages.create(model="sim-text", max_tokens=50, messages=[{"role": "user", "content": "Hello."}])


def generate(client: genai.Client, count: int) -> None:
    for _ in range(count):
        client.models.generate_content(model="gemini-2.5-flash", contents="Hello.")


def test_openai_raises_its_rate_limit_error(limited: Simulator) -> None:
    client = openai.OpenAI(api_key="k", base_url=limited.base_urls["openai-chat"], max_retries=0)
    with client, pytest.raises(openai.RateLimitError) as caught:
        chat(client, 3)
    assert (caught.value.status_code, caught.value.code, caught.value.type) == (429, "rate_limit_exceeded", "requests")
    assert "on requests per min (RPM): Limit 2" in caught.value.message
    headers = caught.value.response.headers
    assert 0 < int(headers["retry-after-ms"]) <= 30_000
    assert headers["x-ratelimit-limit-requests"] == "2"


def test_anthropic_raises_its_rate_limit_error(limited: Simulator) -> None:
    client = anthropic.Anthropic(api_key="k", base_url=limited.base_urls["anthropic"], max_retries=0)
    with client, pytest.raises(anthropic.RateLimitError) as caught:
        message(client, 3)
    assert caught.value.type == "rate_limit_error"
    assert "rate limit of 2 requests per minute" in str(caught.value)
    headers = caught.value.response.headers
    assert 0 < int(headers["retry-after"]) <= 30
    assert headers["x-should-retry"] == "true"
    assert headers["anthropic-ratelimit-requests-limit"] == "2"


def test_google_raises_its_error_with_the_quota_and_the_delay(limited: Simulator) -> None:
    options = types.HttpOptions(base_url=limited.base_urls["gemini"], timeout=20_000)
    with genai.Client(api_key="k", http_options=options) as client, pytest.raises(errors.ClientError) as caught:
        generate(client, 3)
    assert (caught.value.code, caught.value.status) == (429, "RESOURCE_EXHAUSTED")
    failure, _, hint = caught.value.details["error"]["details"]
    [violation] = failure["violations"]
    assert violation["quotaId"] == "GenerateRequestsPerMinutePerProjectPerModel"
    assert (violation["quotaValue"], violation["quotaDimensions"]["model"]) == ("2", "gemini-2.5-flash")
    assert hint["@type"] == "type.googleapis.com/google.rpc.RetryInfo"
    assert 0 < int(hint["retryDelay"].removesuffix("s")) <= 30


def pauses_of(sdk: type[openai.OpenAI] | type[anthropic.Anthropic], monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that an SDK makes before its retries; they are recorded instead of slept."""
    pauses: list[float] = []

    def calculate(client: object, remaining: int, options: object, headers: object = None) -> float:
        pauses.append(original(client, remaining, options, headers))  # type: ignore[arg-type]
        return 0.0

    original = sdk._calculate_retry_timeout
    monkeypatch.setattr(sdk, "_calculate_retry_timeout", calculate)
    return pauses


def test_openai_waits_as_long_as_the_hint_says(limited: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = pauses_of(openai.OpenAI, monkeypatch)
    client = openai.OpenAI(api_key="k", base_url=limited.base_urls["openai-chat"], max_retries=1)
    with client, pytest.raises(openai.RateLimitError):
        chat(client, 5)
    assert pauses
    assert all(0 < pause <= 30 for pause in pauses)


def test_anthropic_waits_as_long_as_the_hint_says(limited: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = pauses_of(anthropic.Anthropic, monkeypatch)
    client = anthropic.Anthropic(api_key="k", base_url=limited.base_urls["anthropic"], max_retries=1)
    with client, pytest.raises(anthropic.RateLimitError):
        message(client, 5)
    assert pauses
    assert all(0 < pause <= 30 for pause in pauses)


def test_an_answer_has_the_report_in_its_headers_and_is_whole(limited: Simulator) -> None:
    for stream in (True, False):
        answer = ask(limited, stream=stream)
        assert (answer.status, answer.whole) == (200, True)
        assert answer.headers["x-ratelimit-limit-requests"] == "2"
    assert ask(limited, directive="stamp=1").status == 429


def test_stamped_answers_have_the_report_too() -> None:
    with open_simulator_thread("events=4,stamp=1", limits=[FEW]) as simulator:
        for stream in (True, False):
            answer = ask(simulator, "gemini", stream=stream)
            assert (answer.status, answer.whole) == (200, True)


def test_keys_have_limits_of_their_own() -> None:
    with open_simulator_thread("events=4", limits=["key=one requests-per-minute=1 bucket=60"]) as simulator:
        for key, statuses in (("one", [200, 429]), ("two", [200, 200])):
            headers = {"authorization": f"Bearer {key}"}
            body = {"model": "m", "messages": [{"role": "user", "content": "Hello."}]}
            with connected(simulator) as line:
                for status in statuses:
                    line.send(request_bytes("/v1/chat/completions", body, headers=headers))
                    assert line.read().status == status


def test_limits_change_while_it_runs_and_count(limited: Simulator) -> None:
    assert [ask(limited).status for _ in range(3)] == [200, 200, 429]
    limited.change_limits([Limit(requests_per_minute=1e9), "model=other requests-per-minute=1"])
    assert [ask(limited).status for _ in range(4)].count(200) >= 3
    changed, other = limited.limit_counts()
    assert (changed.refused_by, other.accepted) == ({"requests": changed.refused}, 0)
    assert changed.accepted + changed.refused == 7
    assert statistics(limited)["limited"] == changed.refused
    limited.change_limits([])
    assert limited.limit_counts() == []
    assert ask(limited).status == 200


def test_limits_that_cannot_be_read_are_refused(limited: Simulator) -> None:
    with pytest.raises(KnobError, match="server"):
        limited.change_limits(["server=nobody"])
    for body in (b"{}", b"[", b'["x=1"]', b"[1]"):
        with connected(limited) as line:
            line.send(request_bytes("/sim/limits", body, method="PUT", headers={}))
            answer = line.read()
        assert answer.status == 400
        assert "error" in answer.json()
    assert get(limited, "/sim/limits") == json.loads(json.dumps(get(limited, "/sim/limits")))
    with pytest.raises(KnobError, match="requests_per_minute"), open_simulator_thread(limits=["requests-per-minute=0"]):
        pass


def test_a_spent_day_has_its_quota_id_and_a_short_delay() -> None:
    with open_simulator_thread("events=4", limits=["requests-per-day=1"]) as simulator:
        ask(simulator, "gemini")
        error = ask(simulator, "gemini").json()["error"]
    assert isinstance(error, dict)
    assert error["details"][0]["violations"][0]["quotaId"] == "GenerateRequestsPerDayPerProjectPerModel"
    assert error["details"][2]["retryDelay"] == "20s"


def test_a_client_that_leaves_frees_its_place() -> None:
    with open_simulator_thread("events=4", limits=["concurrent=1 server=vllm"]) as simulator:
        with connected(simulator) as line:
            line.send(request_bytes("/v1/chat/completions", BODY, directive="stall=2"))
            while b"data:" not in line.received:
                assert line.more()
            assert ask(simulator).status == 503
        while statistics(simulator)["aborted"] == 0:
            pass
        assert ask(simulator).status == 200


BODY = {"model": "m", "messages": [{"role": "user", "content": "Hello."}], "stream": True}
