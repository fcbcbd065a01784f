"""The tokens of an answer: their counts, and for programs that train on them, the tokens as the server sampled them."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeAlias, cast

from ..json.json_types import JSONObject

if TYPE_CHECKING:
    TokenIds: TypeAlias = array[int]
    Logprobs: TypeAlias = array[float]
else:
    TokenIds = Logprobs = array  # before Python 3.12 it takes no type of its elements

WHOLE = frozenset({int})


@dataclass(slots=True)
class Usage:
    """Token counts, as whole numbers. A count that the provider did not report is None, never 0.

    input_tokens: all input, including what was read from or written to a cache.
    output_tokens: visible output, without thinking.
    thinking_tokens: thinking output.
    cached_tokens: the part of the input that was read from a cache.
    cache_write_tokens: the part of the input that was written to a cache.
    total_tokens: the total that the provider reports, else the sum if all parts are known.
    raw: the provider's own report, as received.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    thinking_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    total_tokens: int | None = None
    raw: JSONObject | None = None


class WeightSpan(NamedTuple):
    """The part of an answer that one version of the model's weights has made.

    version: the version, as the server names it.
    start: the position of its first token among the answer's.
    end: the position after its last token.
    """

    version: str
    start: int
    end: int


def new_ids() -> TokenIds:
    """Return an empty array of token ids."""
    return array("q")


def ids_of(values: object) -> TokenIds | None:
    """Return a list of ids as an array; None if it is no list, or if one is no whole number from 0 on of 63 bits."""
    if type(values) is not list or not {*map(type, cast("list[object]", values))} <= WHOLE:
        return None
    try:
        ids: TokenIds = array("q", cast("list[int]", values))
    except OverflowError:
        return None
    return ids if not ids or min(ids) >= 0 else None


@dataclass(slots=True, eq=False)
class Tokens:
    """The tokens of an answer, or of one delta of it, exactly as the server reports them. Nothing is tokenised here.

    The arrays have the buffer protocol: `numpy.asarray(tokens.ids)` and `torch.frombuffer(tokens.ids,
    dtype=torch.int64)` copy nothing.

    ids: the sampled tokens, in order, as 64-bit integers: thinking, calls, their markers and the stop token included.
        None if they are unknown: the server reports log probabilities only, as OpenAI does.
    logprobs: the natural logarithm of each token's probability, as 64-bit floats; NaN where the server sent null. None
        if they were not asked for. As many as `ids`, each at the place of its id, if `complete`.
    prompt_ids: the tokens of the prompt; None if the server does not report them, and in a delta.
    weight_versions: the versions of the weights that made the answer, in order; empty if the server does not report
        them, and in a delta.
    cached: the number of prompt tokens that the server read from its cache; None if it does not report it.
    text_count: the number of `ids`, from the first, whose text is in the answer. The others are the stop token, and the
        tokens whose text a stop string cut away. None if the server does not say which those are: for a stop string
        without log probabilities.
    complete: whether these are all tokens of what arrived. False if ids and log probabilities are not equally many,
        together or in one event of a stream, if they are not as many as the usage reports, or if some cannot be read:
        then no log probability belongs to an id, and nothing may be trained on them.
    """

    ids: TokenIds | None = None
    logprobs: Logprobs | None = None
    prompt_ids: TokenIds | None = None
    weight_versions: tuple[WeightSpan, ...] = ()
    cached: int | None = None
    text_count: int | None = None
    complete: bool = True

    @property
    def text_ids(self) -> TokenIds | None:
        """The ids whose text is in the answer; None where `text_count` is."""
        return None if self.text_count is None or self.ids is None else self.ids[: self.text_count]

    def __eq__(self, other: object) -> bool:
        return self._compared() == other._compared() if isinstance(other, Tokens) else NotImplemented

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def _compared(self) -> tuple[object, ...]:
        logprobs = None if self.logprobs is None else self.logprobs.tobytes()  # NaN equals NaN
        ids = self.ids, self.prompt_ids, self.text_count, self.complete
        return *ids, logprobs, self.weight_versions, self.cached

    def to_json(self) -> JSONObject:
        """Return the tokens as JSON: arrays as lists, with null for a log probability that is no number."""
        ids, logprobs, prompt = self.ids, self.logprobs, self.prompt_ids
        return {
            "ids": None if ids is None else [*ids],
            "logprobs": None if logprobs is None else [value if value == value else None for value in logprobs],
            "prompt_ids": None if prompt is None else [*prompt],
            "weight_versions": [{**span._asdict()} for span in self.weight_versions],
            "cached": self.cached,
            "text_count": self.text_count,
            "complete": self.complete,
        }
