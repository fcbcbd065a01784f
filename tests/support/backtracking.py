"""Measure the work of a regular expression in steps, and build the inputs that cause the most work.

`steps` runs a pattern as CPython's `re` does, by backtracking over the parsed pattern, and counts each comparison with
a character. `attacks` builds inputs from the pattern's own literals and classes: a prefix that leads to a repeat, a
text to repeat, and an end that makes the match fail.
"""

import re
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from re import _constants as c  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, TypeAlias

CONSTANT = 128
"""A repeat with at most this bound counts as a constant factor; it is run with the bound `FEW` instead."""
FEW = 4
MOST_STEPS = 200_000
CLEARLY = 3.0

Ops: TypeAlias = tuple[tuple[Any, Any], ...]
"""Operations of `re`'s parser as nested tuples, so that they can be cache keys.

The argument of an assertion is (direction, width of its body, body)."""
Attack: TypeAlias = tuple[str, str, str]
Worst: TypeAlias = tuple[float, str, Attack]


class TooManySteps(Exception):
    """The pattern has taken more steps than a linear pattern could take."""


@dataclass
class Machine:
    """One run of a pattern over a text.

    shorten: run repeats with a constant bound only `FEW` times.
    steps: the number of comparisons.
    """

    text: str
    ignore_case: bool
    dot_all: bool
    shorten: bool = True
    steps: int = 0

    def spend(self, amount: int = 1) -> None:
        self.steps += amount
        if self.steps > MOST_STEPS:
            raise TooManySteps

    def fits(self, op: Any, argument: Any, place: int) -> bool:
        """Return whether a single operation matches the character at `place`; False at the end of the text."""
        return place < len(self.text) and fits(op, argument, self.text[place], self.dot_all, self.ignore_case)

    def ends(self, ops: Ops, place: int, first: int = 0) -> Iterator[int]:
        """Yield the ends of the matches of these operations that begin at `place`, in the order in which `re` tries."""
        for at in range(first, len(ops)):
            op, argument = ops[at]
            if op is c.AT:  # here, without a generator: most places of a search fail at a word's boundary
                self.spend()
                if not self.is_at(argument, place):
                    return
                continue
            if op not in SINGLE:
                for end in self.one(op, argument, place):
                    yield from self.ends(ops, end, at + 1)
                return
            self.spend()
            if not self.fits(op, argument, place):
                return
            place += 1
        yield place

    def one(self, op: Any, argument: Any, place: int) -> Iterator[int]:
        """Yield the ends of the matches of one operation that is neither `SINGLE` nor `AT`."""
        if op is c.BRANCH:
            for branch in argument[1]:
                if branch and branch[0][0] is c.LITERAL and not self.fits(*branch[0], place):
                    self.spend()  # as below, without a generator
                else:
                    yield from self.ends(branch, place)
        elif op is c.SUBPATTERN:
            yield from self.ends(argument[-1], place)
        elif op in (c.MAX_REPEAT, c.MIN_REPEAT):
            low, high, body = argument
            if not self.shorten:
                pass
            elif high != c.MAXREPEAT and high <= CONSTANT:
                low, high = min(low, FEW), min(high, FEW)
            elif low != c.MAXREPEAT and low <= CONSTANT:
                low = min(low, FEW)
            yield from self.repeat(low, high, body, place, greedy=op is c.MAX_REPEAT)
        elif op is c.POSSESSIVE_REPEAT:
            end = next(self.one(c.MAX_REPEAT, argument, place), None)
            if end is not None:
                yield end
        elif op in (c.ASSERT, c.ASSERT_NOT):
            direction, width, body = argument
            start = place if direction > 0 else place - width
            found = start >= 0 and next(self.ends(body, start), None) is not None
            if found == (op is c.ASSERT):
                yield place
        else:
            raise NotImplementedError(f"{op}: teach the machine this operation")

    def repeat(self, low: int, high: int, body: Ops, place: int, *, greedy: bool) -> Iterator[int]:
        if len(body) == 1 and body[0][0] in SINGLE:
            yield from self.repeat_single(low, high, *body[0], place, greedy=greedy)
            return
        if not greedy and low <= 0:
            yield place
        if high > 0:
            for end in self.ends(body, place):
                if end > place or low > 0:
                    yield from self.repeat(low - 1, high - 1, body, end, greedy=greedy)
        if greedy and low <= 0:
            yield place

    def repeat_single(self, low: int, high: int, op: Any, argument: Any, place: int, *, greedy: bool) -> Iterator[int]:
        end = place
        if not greedy:
            while end - place <= high:
                if end - place >= low:
                    yield end
                self.spend()
                if not self.fits(op, argument, end):
                    return
                end += 1
            return
        while end - place < high and self.fits(op, argument, end):
            self.spend()
            end += 1
        while end - place >= low:
            self.spend()
            yield end
            end -= 1

    def is_at(self, where: Any, place: int) -> bool:
        if where in (c.AT_BEGINNING, c.AT_BEGINNING_STRING):
            return place == 0
        if where is c.AT_END:
            return self.text[place:] in ("", "\n")
        if where is c.AT_END_STRING:
            return place == len(self.text)
        before, after = self.text[place - 1 : place] if place else "", self.text[place : place + 1]
        return (is_word(before) != is_word(after)) == (where is c.AT_BOUNDARY)


SINGLE = {c.LITERAL, c.NOT_LITERAL, c.ANY, c.IN}
"""Operations that match one character."""
REPEATS = {c.MAX_REPEAT, c.MIN_REPEAT, c.POSSESSIVE_REPEAT}


def is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


CATEGORIES = {
    c.CATEGORY_DIGIT: str.isdigit, c.CATEGORY_NOT_DIGIT: lambda character: not character.isdigit(),
    c.CATEGORY_SPACE: str.isspace, c.CATEGORY_NOT_SPACE: lambda character: not character.isspace(),
    c.CATEGORY_WORD: is_word, c.CATEGORY_NOT_WORD: lambda character: not is_word(character),
}  # fmt: skip


@cache
def fits(op: Any, argument: Any, character: str, dot_all: bool, ignore_case: bool = False) -> bool:
    """Return whether a single operation matches the character."""
    if ignore_case:
        return any(fits(op, argument, each, dot_all) for each in (character.lower(), character.upper()))
    code = ord(character)
    if op is c.LITERAL:
        return code == argument
    if op is c.NOT_LITERAL:
        return code != argument
    if op is c.ANY:
        return dot_all or character != "\n"
    wanted, found = True, False
    for kind, value in argument:
        if kind is c.NEGATE:
            wanted = False
        elif kind is c.LITERAL:
            found = found or code == value
        elif kind is c.RANGE:
            found = found or value[0] <= code <= value[1]
        elif kind is c.CATEGORY:
            found = found or bool(CATEGORIES[value](character))
    return found == wanted


@cache
def parsed(pattern: re.Pattern[Any]) -> Ops:
    return nested(parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG))


def nested(value: Any) -> Any:
    """Convert a part of the parser's result: each list and `SubPattern` becomes a tuple."""
    if isinstance(value, tuple) and any(value[0] is op for op in (c.ASSERT, c.ASSERT_NOT)):  # == would take integers
        op, (direction, body) = value
        return op, (direction, body.getwidth()[0], nested(body))
    if isinstance(value, list | tuple | parser.SubPattern):
        return tuple(nested(each) for each in value)
    return value


def steps(pattern: re.Pattern[Any], text: str, method: str) -> int:
    """Return the steps of `match`, `fullmatch` or `search` (`sub`, `split` and `findall` are repeated searches)."""
    ops = parsed(pattern)
    machine = Machine(text, bool(pattern.flags & re.IGNORECASE), bool(pattern.flags & re.DOTALL))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        place = 0
        while place <= len(text):
            ends = (end for end in machine.ends(ops, place) if method != "fullmatch" or end == len(text))
            end = next(ends, None)
            if method != "search":
                break
            place = place + 1 if end is None else max(end, place + 1)
    finally:
        sys.setrecursionlimit(limit)
    return machine.steps


# --- inputs ---

CANDIDATES = [*" \t\n\r\"'<>\\/;:.019amsxA_-é\x00"]
"""The characters with which a class is tried."""


def shortest(ops: Ops, at_least_once: bool = True) -> str:
    """Return a short text that these operations match, lookarounds ignored.

    at_least_once: the text contains each repeat at least once.
    """
    return "".join(_shortest(op, argument, at_least_once) for op, argument in ops)


def _shortest(op: Any, argument: Any, once: bool) -> str:
    if op in SINGLE:
        if op is c.LITERAL:
            return chr(argument)
        kinds = argument if op is c.IN else []
        members = [chr(v if kind is c.LITERAL else v[0]) for kind, v in kinds if kind in (c.LITERAL, c.RANGE)]
        return next((each for each in [*members, *CANDIDATES] if fits(op, argument, each, True)), "")
    if op is c.BRANCH:
        return min((shortest(branch, once) for branch in argument[1]), key=len)
    if op is c.SUBPATTERN:
        return shortest(argument[-1], once)
    if op in REPEATS:
        return shortest(argument[2], once) * min(max(argument[0], int(once)), FEW)
    return ""


def repeats(ops: Ops, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield for each repeat in `ops` the text that leads to it, and the text that it repeats."""
    for op, argument in ops:
        if op is c.BRANCH:
            for branch in argument[1]:
                yield from repeats(branch, before)
        elif op is c.SUBPATTERN:
            yield from repeats(argument[-1], before)
        elif op in REPEATS:
            yield before, shortest(argument[2])
            yield from repeats(argument[2], before)
        before += _shortest(op, argument, False)


def singles(ops: Ops) -> Iterator[tuple[Any, Any]]:
    for op, argument in ops:
        if op in SINGLE:
            yield op, argument
        elif op is c.BRANCH:
            for branch in argument[1]:
                yield from singles(branch)
        elif op is c.SUBPATTERN or op in REPEATS:
            yield from singles(argument[-1])


def attacks(pattern: re.Pattern[Any]) -> list[Attack]:
    """Return the attacks on a pattern: prefix, repeated text and end of each input."""
    ops = parsed(pattern)
    found = list(repeats(ops))
    beginnings = dict.fromkeys(["", *(before for before, _ in found), shortest(ops)])
    classes = [single for single in singles(ops) if single[0] is not c.LITERAL]
    kinds = {tuple(fits(*single, each, True) for single in classes): each for each in reversed(CANDIDATES)}
    alphabet = [each for taken, each in kinds.items() if any(taken)]
    pieces = dict.fromkeys([*alphabet, *(body for _, body in found), *beginnings, shortest(ops), shortest(ops, False)])
    ends = ("", "\x00", "!\n")
    return [(before, piece, end) for before in beginnings for piece in pieces if piece for end in ends]


def growth(pattern: re.Pattern[Any], attack: Attack, method: str, size: int = 12) -> float:
    """Return the factor by which the work per character grows if the input is four times as long.

    1 means linear work, 4 quadratic work.
    """
    before, piece, end = attack
    work: list[float] = []
    for count in (size, 4 * size):
        text = before + piece * count + end
        try:
            work.append((steps(pattern, text, method) + len(text)) / len(text))
        except TooManySteps:
            return float("inf")
    return work[1] / work[0]


def worst(pattern: re.Pattern[Any], methods: Collection[str] = ("fullmatch", "search")) -> Worst:
    """Return the attack with the fastest growth of work, or the first one that is clearly worse than linear.

    The result has the growth, the method and the parts of the input.
    """
    found: Worst = (0.0, "", ("", "", ""))
    for attack in attacks(pattern):
        for method in methods:
            found = max(found, (growth(pattern, attack, method), method, attack))
            if found[0] > CLEARLY:
                return found
    return found
