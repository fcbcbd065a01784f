"""The official SDKs over the transports, against the built-in simulator: answers, streams and cancellation."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing

import anthropic
import httpx
import httpx2
import openai
import pytest
import trio
from google import genai
from google.genai import types

import manystream.httpx
import manystream.httpx2
from manystream.simulator import Simulator, open_simulator
from tests.support.waiting import eventually

pytestmark = pytest.mark.filterwarnings("ignore:Async generator '(openai|httpx2):ResourceWarning")
"""trio warns of the generators of SDK and client, which they do not close, with any transport."""

WORDS = 40
ENDLESS = "rate=200,events=100000"
Main = Callable[[], Awaitable[None]]
Run = Callable[[Main], None]


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with open_simulator(f"events={WORDS}") as simulator:
        yield simulator


@pytest.fixture(scope="module")
def endless() -> Iterator[Simulator]:
    with open_simulator(ENDLESS) as simulator:
        yield simulator


async def limited(main: Main) -> None:
    async with asyncio.timeout(60):
        await main()


async def limited_on_trio(main: Main) -> None:
    with trio.fail_after(60):
        await main()


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest) -> Run:
    if request.param == "trio":
        return lambda main: trio.run(limited_on_trio, main)
    return lambda main: asyncio.run(limited(main))


@pytest.fixture
def transport() -> manystream.httpx2.Transport:
    return manystream.httpx2.Transport()


def opened(transport: manystream.httpx2.Transport) -> str:
    return repr(transport).split(",")[0]


def openai_client(simulator: Simulator, transport: manystream.httpx2.Transport) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        api_key="k", base_url=f"{simulator.origin}/v1", max_retries=0,
        http_client=openai.DefaultAsyncHttpx2Client(transport=transport),
    )  # fmt: skip


def anthropic_client(simulator: Simulator, transport: manystream.httpx2.Transport) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(
        api_key="k", base_url=simulator.origin, max_retries=0,
        http_client=anthropic.DefaultAsyncHttpxClient(transport=transport),
    )  # fmt: skip


def gemini_client(simulator: Simulator, transport: manystream.httpx2.Transport) -> genai.client.AsyncClient:
    options = types.HttpOptions(base_url=simulator.origin, httpx_async_client=httpx2.AsyncClient(transport=transport))
    return genai.Client(api_key="k", http_options=options).aio


def test_openai_streams_on_one_connection(
    run: Run, simulator: Simulator, transport: manystream.httpx2.Transport
) -> None:
    async def main() -> None:
        async with openai_client(simulator, transport) as client:
            for _ in range(2):
                completion = await client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": "Hi"}]
                )
                assert completion.choices[0].message.content
                text = ""
                stream = await client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": "Hi"}], stream=True
                )
                async for chunk in stream:
                    text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
                assert len(text.split()) > WORDS / 2
                response = await client.responses.create(model="m", input="Hi")
                assert response.output_text
            assert opened(transport) == "<Transport <Pool 1 open"

    run(main)


def test_openai_leaves_a_stream_early(run: Run, endless: Simulator, transport: manystream.httpx2.Transport) -> None:
    async def main() -> None:
        async with openai_client(endless, transport) as client:
            stream = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "Hi"}], stream=True
            )
            async with stream:
                async for _ in stream:
                    break
            await eventually(lambda: opened(transport) == "<Transport <Pool 0 open")

    run(main)


def test_openai_reports_a_server_that_is_gone(run: Run, transport: manystream.httpx2.Transport) -> None:
    async def main() -> None:
        client = openai.AsyncOpenAI(
            api_key="k", base_url="http://127.0.0.1:9/v1", max_retries=0,
            http_client=openai.DefaultAsyncHttpx2Client(transport=transport),
        )  # fmt: skip
        async with client:
            with pytest.raises(openai.APIConnectionError) as caught:
                await client.models.list()
            assert isinstance(caught.value.__cause__, httpx2.ConnectError)

    run(main)


def test_anthropic_answers_and_streams(run: Run, simulator: Simulator, transport: manystream.httpx2.Transport) -> None:
    async def main() -> None:
        async with anthropic_client(simulator, transport) as client:
            for _ in range(2):
                message = await client.messages.create(
                    model="m", max_tokens=100, messages=[{"role": "user", "content": "Hi"}]
                )
                assert message.content
                async with client.messages.stream(
                    model="m", max_tokens=100, messages=[{"role": "user", "content": "Hi"}]
                ) as stream:
                    text = "".join([part async for part in stream.text_stream])
                assert len(text.split()) > WORDS / 2

    run(main)


def test_gemini_answers_and_streams(run: Run, simulator: Simulator, transport: manystream.httpx2.Transport) -> None:
    async def main() -> None:
        async with gemini_client(simulator, transport) as client:
            for _ in range(2):
                answer = await client.models.generate_content(model="m", contents="Hi")
                assert answer.text
                stream = await client.models.generate_content_stream(model="m", contents="Hi")
                async with aclosing(stream):
                    parts = [part.text or "" async for part in stream]
                assert len("".join(parts).split()) > WORDS / 2
        await transport.aclose()  # the SDK closes no client that it was given

    run(main)


@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_a_cancelled_stream_closes(
    run: Run, endless: Simulator, transport: manystream.httpx2.Transport, sdk: str
) -> None:
    received: list[object] = []

    async def read() -> None:
        if sdk == "openai":
            stream = await openai_client(endless, transport).chat.completions.create(
                model="m", messages=[{"role": "user", "content": "Hi"}], stream=True
            )
            async with stream:
                async for event in stream:
                    received.append(event)
            return
        async with anthropic_client(endless, transport).messages.stream(
            model="m", max_tokens=100, messages=[{"role": "user", "content": "Hi"}]
        ) as events:
            async for event in events:
                received.append(event)

    async def main() -> None:
        if trio.lowlevel.in_trio_task():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                await eventually(lambda: len(received) > 3)
                nursery.cancel_scope.cancel()
        else:
            task = asyncio.create_task(read())
            await eventually(lambda: len(received) > 3)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
        await eventually(lambda: opened(transport) == "<Transport <Pool 0 open")
        await transport.aclose()

    run(main)


def test_many_streams_at_once(run: Run, simulator: Simulator, transport: manystream.httpx2.Transport) -> None:
    """More than a client's default limit of connections, all at the same time."""
    count, texts = 150, list[str]()

    async def main() -> None:
        async with openai_client(simulator, transport) as client:

            async def read() -> None:
                stream = await client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": "Hi"}], stream=True
                )
                parts = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
                texts.append("".join(parts))

            if trio.lowlevel.in_trio_task():
                async with trio.open_nursery() as nursery:
                    for _ in range(count):
                        nursery.start_soon(read)
            else:
                await asyncio.gather(*(read() for _ in range(count)))

    run(main)
    assert len(texts) == count
    assert all(texts)


def test_an_older_sdk_takes_a_client_of_httpx(simulator: Simulator) -> None:
    """`openai` still accepts httpx's clients; older SDKs accept no others."""

    async def main() -> None:
        client = openai.AsyncOpenAI(
            api_key="k",
            base_url=f"{simulator.origin}/v1",
            http_client=httpx.AsyncClient(transport=manystream.httpx.Transport()),  # type: ignore[arg-type]
        )
        async with client:
            completion = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])
            assert completion.choices[0].message.content

    asyncio.run(limited(main))
