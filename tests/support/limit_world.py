"""Shared by the tests of this folder."""

from manystream.simulator import Limit
from manystream.simulator.limiter import Limiter, Ticket, Usage
from manystream.simulator.prompt import APIError

WALL = 1_700_000_000.0


USAGE = Usage(model="m", input_tokens=100, cached_tokens=0, output_tokens=50, max_tokens=400)


class World:
    """A limiter and its clock."""

    def __init__(self, *limits: Limit) -> None:
        self.limiter = Limiter(limits)
        self.now = 1000.0

    def ask(self, usage: Usage = USAGE, *, key: str = "k", dialect: str = "openai-chat") -> Ticket | APIError:
        try:
            ticket = self.limiter.accept(dialect, key, usage, self.now, WALL + self.now)
        except APIError as failure:
            return failure
        assert ticket is not None
        return ticket

    def accepted(self, count: int, usage: Usage = USAGE, **where: str) -> int:
        """How many of so many requests are accepted now."""
        return sum(isinstance(self.ask(usage, **where), Ticket) for _ in range(count))

    def end(self, ticket: Ticket | APIError, *, whole: bool = True) -> None:
        assert isinstance(ticket, Ticket)
        self.limiter.end(ticket, self.now, whole=whole)


# --- accounts: what buckets hold at each moment ---

CACHED = Usage(model="m", input_tokens=100, cached_tokens=30, output_tokens=50, max_tokens=400)


def accepted(limiter: Limiter, usage: Usage = CACHED, *, dialect: str = "openai-chat", key: str = "k") -> Ticket:
    ticket = limiter.accept(dialect, key, usage, 1000.0, 0.0)
    assert ticket is not None
    return ticket
