"""Settings and fixtures of all tests.

They are the settings of property tests, the handling of SIGINT in child processes, the environment, the authorities
that the clients of SDKs trust, and the simulator and the store that tests of several folders use.
"""

import gc
import os
import signal
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings

import manystream as ms
from manystream.providers.catalog.profiles import PROFILES
from manystream.simulator import Simulator, open_simulator_thread

settings.register_profile("manystream", deadline=None)  # on a busy machine any example may take a second
settings.register_profile("fuzz", parent=settings.get_profile("manystream"), max_examples=20_000)
settings.load_profile("manystream")

# A shell makes its background processes ignore SIGINT, and their children inherit that. Without this line, commands
# that tests interrupt would never end if the tests themselves run in the background.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No test may send a request to the gateway of the person who runs it.
for place in {place.partition("/")[0] for row in PROFILES for place in row.url_variables}:
    os.environ.pop(place, None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without the garbage collector, and exempt from it all that exists then.

    Modules and thousands of test items live until the end. Otherwise each full collection, also each `gc.collect()` in
    a test, looks at millions of objects that cannot be garbage.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def few_authorities(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let the clients of SDKs trust one authority, also in child processes.

    Each client that is created reads the file of all authorities, which takes 25 to 80 ms. Tests that use TLS have
    authorities of their own.
    """
    with pytest.MonkeyPatch.context() as patch:
        with suppress(ImportError):
            import certifi

            first, end, _ = certifi.contents().partition("-----END CERTIFICATE-----\n")
            path = tmp_path_factory.mktemp("authorities") / "one.pem"
            path.write_text(first + end)
            patch.setenv("SSL_CERT_FILE", str(path))
        yield


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a store's file."""
    return tmp_path / "conversations.db"


@pytest.fixture
def store(path: Path) -> Iterator[ms.ConversationStore]:
    """Open an empty store."""
    with ms.ConversationStore(path) as opened:
        yield opened


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    """Run a simulator that responds with few events. Test files that need another one define their own."""
    with open_simulator_thread("events=4") as simulator:
        yield simulator


@pytest.fixture
def provider(simulator: Simulator) -> ms.Provider:
    """Return the simulator as the provider `sim`."""
    return ms.OpenAIChat("key", simulator.base_urls["openai-chat"], name="sim")
