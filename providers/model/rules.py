"""Rules for fields: the types and ranges that a value may have, and the error for any other value.

A table maps each field of a class to its `Rule`. A `Checker` checks an object against its class's table: first with one
function that is generated from the table (`FastCheck`), and if that returns False, row by row, which raises the error.

The functions at the end distinguish callables that run when they are called from those that only return an object to
await or iterate. A call of a coroutine function or a generator function runs none of its body. So where a plain
function is expected, such a callable would have no effect.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import FunctionType, MethodType, NoneType
from typing import TypeAlias, TypeVar, cast

from ..errors import InvalidRequestError

Fits: TypeAlias = Callable[..., object]
"""Returns whether a value, of a type that its rule accepts, is in range: anything true or false."""

Item = TypeVar("Item")

LONGEST_SHOWN = 60
LARGEST_SHOWN = 10**30
"""The longest text and the largest whole number that an error shows as they are."""

COMMON: dict[type, tuple[type, ...]] = {Sequence: (list, tuple), Mapping: (dict,)}
"""Abstract type → the types that the fast check accepts for it."""

CONTAINERS = (list, tuple, dict)

PLAIN = (bool, str, bytes, bytearray, memoryview)
"""Types that Python also counts as another type (bool as int, the others as sequences). Rules do not."""


@dataclass(slots=True, frozen=True)
class Rule:
    """What one field accepts.

    must: the accepted values in words, following "must be".
    kinds: the accepted types, with their subclasses. A bool does not count as an int, nor a string as a sequence.
    fits: whether a value of these types is in range; None if all are. It is not called for None.
    free: types whose values are all in range.
    inside: for containers, the thorough form of `fits`: raises an error that names the place. It decides if `fits`
        returns False.
    item: for sequences, the rule of each item. The fast check contains its tests, and does not call `fits`.
    checkers: for instances of classes with tables of their own: those tables. As `item`.
    forms: type of a wrong value → the right form, for the error. `{}` in it stands for the value.
    secret: whether an error must not show the value, whatever its type.
    """

    must: str
    kinds: tuple[type, ...]
    fits: Fits | None = None
    free: tuple[type, ...] = ()
    inside: Callable[..., None] | None = None
    item: Rule | None = None
    checkers: tuple[Checker, ...] = ()
    forms: Mapping[type, str] = field(default_factory=lambda: {})
    secret: bool = False

    def takes(self, value: object) -> bool:
        """Return whether a value has one of the accepted types."""
        if type(value) in self.kinds:
            return True
        plain: list[type] = [kind for kind in PLAIN if isinstance(value, kind)] or [object]
        found = [kind for kind in self.kinds if isinstance(value, kind) and issubclass(kind, plain[0])]
        return bool(found)

    def passes(self, value: object) -> bool:
        """Return whether a value is accepted. False for a container may be wrong; then `check` decides."""
        if type(value) not in self.kinds and not self.takes(value):
            return False
        return value is None or self.fits is None or isinstance(value, self.free) or bool(self.fits(value))

    def check(self, value: object, where: str) -> None:
        """Raise `InvalidRequestError` naming the place, unless the value is accepted."""
        if not self.takes(value):
            raise InvalidRequestError(where, self._complaint(value))
        if value is None or isinstance(value, self.free):
            return
        if self.inside is not None:
            self.inside(value, where)
        elif self.fits is not None and not self.fits(value):
            raise InvalidRequestError(where, self._complaint(value))

    def _complaint(self, value: object) -> str:
        form = next((form for kind, form in self.forms.items() if Rule("", (kind,)).takes(value)), "")
        shown = type(value).__name__ if self.secret and value is not None else described(value)
        right = "; " + form.format("…" if self.secret else shown) if form else ""
        return f"must be {self.must}, not {shown}{right}"


def described(value: object) -> str:
    """Return a wrong value as an error shows it: numbers and short words as they are, anything else by its type."""
    if isinstance(value, int) and not -LARGEST_SHOWN <= value <= LARGEST_SHOWN:
        return "a larger int"  # Python refuses to write one of thousands of digits
    if value is None or isinstance(value, int | float | str):
        text = repr(value)
        return text if len(text) <= LONGEST_SHOWN else type(value).__name__
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return type(value).__name__


class FastCheck:
    """The fast check of a rule: one function of plain comparisons, which also has the tests of all inner rules.

    Interpreting the tables at each call took three times as long, a tenth of the time that starting a call takes. The
    function is compiled when it is first called, because a program needs few of them.

    passes: whether a value and everything in it has a common type and is in range. False may also mean that a type is
        uncommon, such as a subclass; then the thorough check decides.
    """

    __slots__ = ("_rule", "passes")

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self.passes: Callable[[object], bool] = self._first

    def _first(self, value: object) -> bool:
        self.passes = _compiled(self._rule)
        return self.passes(value)


class Checker(FastCheck):
    """Checks objects of one class against the class's table.

    kind: the class.
    rules: field → rule.
    """

    __slots__ = ("kind", "rules")

    def __init__(self, kind: type, rules: Mapping[str, Rule]) -> None:
        super().__init__(Rule("", (kind,), checkers=(self,)))
        self.kind: type = kind
        self.rules: Mapping[str, Rule] = rules

    def fits(self, value: object) -> bool:
        """Return what the fast check returns."""
        return self.passes(value)

    def check(self, value: object, where: str = "") -> None:
        """Raise `InvalidRequestError` naming the field, unless all rules accept the object. `where`: its place."""
        if self.passes(value):
            return
        if not isinstance(value, self.kind):
            raise InvalidRequestError(where, f"must be {_article(self.kind.__name__)}, not {described(value)}")
        for name, rule in self.rules.items():
            rule.check(getattr(value, name), f"{where}.{name}" if where else name)


def _compiled(rule: Rule) -> Callable[[object], bool]:
    source = _Source()
    source.add_rule(rule, "value", "    ")
    return source.function()


class _Source:
    """The source of a fast check while it is written. It contains names of tables' fields, and no other text."""

    def __init__(self) -> None:
        self._lines = ["def passes(value):"]
        self._names: dict[str, object] = {}

    def function(self) -> Callable[[object], bool]:
        exec("\n".join([*self._lines, "    return True"]), self._names)
        return cast("Callable[[object], bool]", self._names["passes"])

    def add_rule(self, rule: Rule, value: str, indent: str) -> None:
        """Add lines that return False unless a rule accepts the value of a variable that is not None."""
        common = {type_ for each in rule.kinds for type_ in COMMON.get(each, (each,))} - {NoneType}
        if rule.free:
            kinds = " and ".join(f"type({value}) is not {self._name(kind)}" for kind in rule.free)
            self._add(f"{indent}if {kinds}:")
            common -= set(rule.free)
            indent += "    "
        if rule.checkers:
            self._add_checkers(rule, value, indent)
            return
        only = next(iter(common)) if len(common) == 1 else object
        if only.__module__ != "builtins" and rule.item is None and rule.fits is None:
            self._refuse_if(f"not isinstance({value}, {self._name(only)})", indent)  # the rule says no more
        elif len(common) == 1:
            self._refuse_if(f"type({value}) is not {self._name(only)}", indent)
        else:
            kinds = " and ".join(f"type({value}) is not {self._name(kind)}" for kind in sorted(common, key=_rank))
            self._refuse_if(kinds or "True", indent)
        if rule.fits is bool:
            self._refuse_if(f"not {value}", indent)
        if rule.item is not None:
            item = f"{value}_item"
            self._add(f"{indent}if {value}:")  # an iterator for nothing costs more than this test
            self._add(f"{indent}    for {item} in {value}:")
            self.add_rule(rule.item, item, indent + "        ")
        elif rule.fits is not None and rule.fits is not bool:
            # An empty container contains nothing wrong.
            holds = rule.inside is not None and not common.isdisjoint(CONTAINERS)
            self._refuse_if(f"{value} and " * holds + f"not {self._name(rule.fits)}({value})", indent)

    def _add_checkers(self, rule: Rule, value: str, indent: str) -> None:
        """Add the tests of the table that belongs to the value's class."""
        if len(rule.checkers) == 1:
            self._refuse_if(f"type({value}) is not {self._name(rule.checkers[0].kind)}", indent)
            self._add_fields(rule.checkers[0], value, indent)
            return
        kind = f"{value}_kind"
        self._add(f"{indent}{kind} = type({value})")
        for number, checker in enumerate(rule.checkers):
            self._add(f"{indent}{'elif' if number else 'if'} {kind} is {self._name(checker.kind)}:")
            self._add_fields(checker, value, indent + "    ")
        self._add(f"{indent}else: return False")

    def _add_fields(self, checker: Checker, value: str, indent: str) -> None:
        """Add the test of each field. Most optional fields are None; then nothing is stored."""
        for name, rule in checker.rules.items():
            inner, variable = indent, f"{value}_field"
            if NoneType in rule.kinds:
                self._add(f"{indent}if {value}.{name} is not None:")
                inner += "    "
            self._add(f"{inner}{variable} = {value}.{name}")
            self.add_rule(rule, variable, inner)

    def _add(self, line: str) -> None:
        self._lines.append(line)

    def _refuse_if(self, test: str, indent: str) -> None:
        self._add(f"{indent}if {test}: return False")

    def _name(self, value: object) -> str:
        """Return the name that stands for a value in the source."""
        name = f"value{len(self._names)}"
        self._names[name] = value
        return name


def _rank(kind: type) -> tuple[bool, str]:
    """Return a key that sorts the most common types first: of a sequence, `list`."""
    return kind is not list, kind.__name__


# --- the common rules ---


def text(
    must: str = "text", *, empty: bool = True, secret: bool = False, forms: Mapping[type, str] | None = None
) -> Rule:
    """Return a rule for a string. `empty`: whether it may be empty."""
    return Rule(must, (str,), None if empty else bool, secret=secret, forms=forms or {})


def whole(low: int, high: float = math.inf, *, must: str = "") -> Rule:
    """Return a rule for a whole number from `low` to `high`."""
    return Rule(must or f"a whole number of at least {low}", (int,), _between(low, high))


def number(low: float, high: float = math.inf, *, must: str, above: bool = False, infinite: bool = False) -> Rule:
    """Return a rule for a number from `low` to `high`.

    above: whether `low` itself is refused.
    infinite: whether infinity is accepted.

    A whole number above the largest float is always refused: it is less than infinity as well.
    """
    lowest = math.nextafter(low, math.inf) if above else low
    finite = _between(lowest, min(high, LARGEST))

    def fits(value: float) -> bool:
        return finite(value) or value == math.inf

    return Rule(must, (int, float), fits if infinite else finite)


def flag() -> Rule:
    """Return a rule for True or False."""
    return Rule("True or False", (bool,))


def word(*words: str) -> Rule:
    """Return a rule for a string that is one of these words."""
    return Rule(f"one of {', '.join(map(repr, words))}", (str,), frozenset(words).__contains__)


def instance(*kinds: type, must: str = "", forms: Mapping[type, str] | None = None) -> Rule:
    """Return a rule for an instance of one of these classes."""
    names = " or ".join(kind.__name__ for kind in kinds)
    return Rule(must or _article(names), kinds, forms=forms or {})


def optional(rule: Rule) -> Rule:
    """Return a rule that also accepts None."""
    return replace(rule, kinds=(*rule.kinds, NoneType))


def sequence(item: Rule, must: str, *, count: int | None = None, forms: Mapping[type, str] | None = None) -> Rule:
    """Return a rule for a list or another sequence whose items are all accepted by a rule.

    count: how many items there must be; None for any number.
    """

    def fits(values: Sequence[object]) -> bool:
        return (count is None or len(values) == count) and all(map(item.passes, values))

    def inside(values: Sequence[object], where: str) -> None:
        if count is not None and len(values) != count:
            raise InvalidRequestError(where, f"must be {must}, not {len(values)}")
        for position, value in enumerate(values):
            item.check(value, f"{where}[{position}]")

    return Rule(must, (Sequence,), fits, inside=inside, item=item if count is None else None, forms=forms or {})


def members(value: Rule, must: str, *, forms: Mapping[type, str] | None = None) -> Rule:
    """Return a rule for a mapping from text to values that a rule accepts."""

    def fits(mapping: Mapping[object, object]) -> bool:
        return all(isinstance(name, str) and value.passes(each) for name, each in mapping.items())

    def inside(mapping: Mapping[object, object], where: str) -> None:
        for name, each in mapping.items():
            if not isinstance(name, str):
                raise InvalidRequestError(where, f"must have text as names, not {described(name)}")
            value.check(each, f"{where}[{name!r}]")

    return Rule(must, (Mapping,), fits, inside=inside, forms=forms or {})


def checked(checker: Checker, must: str = "", *, forms: Mapping[type, str] | None = None) -> Rule:
    """Return a rule for an instance of a class that has its own table."""
    return Rule(
        must or _article(checker.kind.__name__),
        (checker.kind,),
        checker.fits,
        inside=checker.check,
        checkers=(checker,),
        forms=forms or {},
    )


def either(must: str, *checkers: Checker, texts: Rule | None = None, forms: Mapping[type, str] | None = None) -> Rule:
    """Return a rule for an instance of one of several classes with their own tables, or a text that `texts` accepts."""
    checks: dict[type, Rule] = {checker.kind: checked(checker) for checker in checkers}
    if texts is not None:
        checks[str] = texts

    def rule_of(value: object) -> Rule:
        return next(rule for kind, rule in checks.items() if isinstance(value, kind))

    def fits(value: object) -> bool:
        return (checks.get(type(value)) or rule_of(value)).passes(value)

    def inside(value: object, where: str) -> None:
        rule_of(value).check(value, where)

    inner = () if texts is not None else checkers
    return Rule(must, tuple(checks), fits, inside=inside, checkers=inner, forms=forms or {})


def check_arguments(rules: Mapping[str, Rule], /, **arguments: object) -> None:
    """Raise `InvalidRequestError` naming the argument, unless the rule of its name accepts each of them."""
    for name, value in arguments.items():
        rules[name].check(value, name)


def check_iterable(value: object, where: str, must: str) -> None:
    """Raise `InvalidRequestError` for a value that is no iterable of items: a text and a mapping are none."""
    kind = type(value).__name__
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise InvalidRequestError(where, f"must be {must}, not {kind}")


def items_of(values: Iterable[Item], kind: type[Item], where: str) -> list[Item]:
    """Return the items of an iterable. Raises `InvalidRequestError` for any other value, and for an item that is not of
    this class.

    where: the name of the parameter.
    """
    check_iterable(values, where, f"a list of {kind.__name__}")
    items, rule = list(values), Rule(_article(kind.__name__), (kind,), secret=True)
    for position, item in enumerate(items):
        rule.check(item, f"{where}[{position}]")
    return items


LARGEST = math.nextafter(math.inf, 0.0)


def _article(name: str) -> str:
    return f"an {name}" if name[:1] in "AEIOU" else f"a {name}"


def _between(low: float, high: float) -> Callable[[float], bool]:
    def fits(value: float) -> bool:
        return low <= value <= high

    return fits


DEFERRED: dict[int, str] = {
    inspect.CO_COROUTINE: "a coroutine function (async def)",
    inspect.CO_ASYNC_GENERATOR: "an asynchronous generator function (async def with yield)",
    inspect.CO_ITERABLE_COROUTINE: "a coroutine function (types.coroutine)",
    inspect.CO_GENERATOR: "a generator function (yield)",
}
"""Flag of a function's code → the kind of function in words. None of them runs its body when it is called.

A function that `types.coroutine` made has the generator's flag as well, so its own flag comes first.
"""

ANY_DEFERRED = sum(DEFERRED)
"""All flags of `DEFERRED`, combined."""


def why_deferred(function: Callable[..., object]) -> str:
    """Return why a callable does not run when it is called, such as "fetch is a coroutine function (async def)".

    Returns an empty text for a callable that runs.
    """
    inner, name = _function_of(function)
    flags = inner.__code__.co_flags if isinstance(inner, FunctionType) else 0
    found = [words for flag, words in DEFERRED.items() if flags & flag]
    if not found and (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(inner)):
        found = [DEFERRED[inspect.CO_COROUTINE]]  # marked as one: inspect.markcoroutinefunction, AsyncMock
    return f"{name} is {found[0]}" if found else ""


def is_coroutine_function(function: Callable[..., object]) -> bool:
    """Return whether a call of a callable returns a coroutine, which runs when it is awaited."""
    inner, _ = _function_of(function)
    flags = inner.__code__.co_flags if isinstance(inner, FunctionType) else 0
    marked = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(inner)
    return marked or bool(flags & (inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE))


def _function_of(callback: Callable[..., object]) -> tuple[object, str]:
    """Return the function inside partials, bound methods and objects with `__call__`, and its name."""
    function: object = callback
    while True:
        if isinstance(function, partial):
            function = cast("partial[object]", function).func
        elif isinstance(function, MethodType):
            function = function.__func__
        elif isinstance(function, FunctionType | type):
            return function, function.__qualname__
        else:
            owner = type(function)
            return owner.__call__, f"{owner.__qualname__}.__call__"
