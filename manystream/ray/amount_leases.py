"""Leases on budgets: a keeper gives amounts that can be used once, such as dollars, to holders in several processes.

A holder may use what it was given, and asks for more before that is used up. Both sides count totals that only grow:
what the keeper gave, what the holder used, and what it returned. So a message that is lost, repeated or late does no
harm: the highest total is the current one.

The keeper's caller writes down what is given before it sends it. After a restart, a new keeper counts what was written
down as used. A keeper counts what a dead holder was given as used, until all answers of that holder are known.

When less is free than a holder needs, the keeper asks the other holders to return what no call has reserved, and gives
it to the holder that has waited longest. So the rest of a budget is never left in parts that are too small for a call.

From top to bottom: a holder, which an engine uses, the messages, and the keeper. The callers carry the messages.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..engine.embedding import UNITS_PER_USD, AmountHolder


def units(dollars: float) -> int:
    """Return US dollars as nano-dollars."""
    return round(dollars * UNITS_PER_USD)


class WorkerAmount(AmountHolder):
    """A part of one amount of a shared budget, which one engine uses, and which it reports to a keeper.

    name: the holder's name. It must be new for each process.
    """

    def __init__(self, name: str, scale: int = UNITS_PER_USD) -> None:
        super().__init__(scale)
        self.name = name
        self._given = 0
        self._returned = 0

    def receive(self, gift: Gift) -> None:
        """Note what the keeper has sent, and let the engine use it."""
        is_late = gift.total < self._given
        self._given = max(self._given, gift.total)
        free = self._given - self._returned - self.taken
        if gift.recalled and free > 0 and not is_late:
            self._returned += free
        before = self.allowed, self.most
        self.allowed: int = self._given - self._returned
        self.most: float = self.most if is_late else gift.most
        if (self.allowed, self.most) != before:
            self.changed()

    def report(self) -> AmountReport:
        """Return the totals for the keeper. Send them regularly: an earlier report may have been lost."""
        needed = max(0, self.needed - self.free) if self.needed else 0
        wanted = max(needed, self.wanted - self.free) if needed else 0
        return AmountReport(self.name, self._given, self.spent, self._returned, needed, wanted)


PARTS_PER_HOLDER = 2
"""A gift is at most the free amount, divided by so many times the number of holders, unless a single call needs more.
So the last part of a budget is given in small amounts, and little of it lies unused at holders."""


@dataclass(slots=True, frozen=True)
class Gift:
    """What the keeper sends to a holder.

    total: all that the holder was given so far.
    most: the most that the holder may ever use: the limit without what others have used.
    recalled: whether the holder returns what no call has reserved, because others wait for it. Never with a new amount.
    """

    holder: str
    total: int
    most: int
    recalled: bool = False


@dataclass(slots=True, frozen=True)
class AmountReport:
    """What a holder sends to the keeper.

    given: all that the holder knows it was given. The keeper gives no more while a gift is on its way.
    used: all that it has used so far.
    returned: all that it has returned so far.
    needed: the amount that its next call needs beyond what it has; 0 if it needs none.
    wanted: about the amount that all its waiting calls need, at least `needed`.
    """

    holder: str
    given: int = 0
    used: int = 0
    returned: int = 0
    needed: int = 0
    wanted: int = 0


@dataclass(slots=True)
class _Account:
    given: int = 0
    used: int = 0
    returned: int = 0

    @property
    def counted(self) -> int:
        """What counts against the budget: all that was given and not returned, the used part included."""
        return max(self.given - self.returned, self.used)


class AmountKeeper:
    """The keeper of one amount of a budget. Amounts are whole numbers of a unit that the caller chooses.

    limit: the largest amount that all holders together may use.
    used: what was used before.

    counted: what was used, given to holders, or lost with them. The caller writes it down before it sends a gift.
    used: what was used, as far as holders have reported it, and what was lost with holders.
    lost: what was given to holders that have died, and not reported as used.
    """

    def __init__(self, limit: int, used: int = 0) -> None:
        self.limit = limit
        self.counted: int = used
        self.used: int = used
        self.lost: int = 0
        self._accounts: dict[str, _Account] = {}
        self._dead: dict[str, _Account] = {}
        self._ended: set[str] = set()
        self._needs: dict[str, None] = {}
        """the holders that need more than is free, the one that has waited longest first"""

    @property
    def free(self) -> int:
        """The amount that was not given to any holder."""
        return self.limit - self.counted

    def report(self, report: AmountReport) -> Gift | None:
        """Note a holder's totals, and return what to send; None for a holder that has died or ended."""
        account, holder = self.note(report), report.holder
        if account is None:
            return None
        if report.needed > 0:
            self._needs.setdefault(holder)
        else:
            self._needs.pop(holder, None)
        if report.given == account.given and self._is_next(holder) and report.needed <= self.free:
            self._needs.pop(holder, None)
            part = max(0, self.free) // (PARTS_PER_HOLDER * len(self._accounts))
            before = account.counted
            account.given += max(report.needed, min(report.wanted, part))
            self.counted += account.counted - before
        knows_all = report.given == account.given
        return self._gift(holder, account, recalled=knows_all and bool(self._needs) and not self._is_next(holder))

    def note(self, report: AmountReport) -> _Account | None:
        """Note a holder's totals, and give nothing. Returns None for a holder that has died or ended."""
        holder = report.holder
        if holder in self._ended or holder in self._dead:
            return None
        account = self._accounts.setdefault(holder, _Account())
        before, used_before = account.counted, account.used
        account.returned = min(max(report.returned, account.returned), account.given)
        account.used = max(report.used, account.used)
        self.counted += account.counted - before
        self.used += account.used - used_before
        return account

    def lose(self, holder: str) -> None:
        """Note that a holder has died: what it was given counts as used."""
        self._needs.pop(holder, None)
        account = self._accounts.pop(holder, None)
        if account is not None:
            self._dead[holder] = account
            self.used += account.counted - account.used
            self.lost += account.counted - account.used

    def settle(self, holder: str, used: int) -> None:
        """Note what a holder has used in all: every answer of it is known, and it makes no more calls. The rest of what
        it was given is free again. The holder may have died before."""
        self._needs.pop(holder, None)
        account = self._dead.pop(holder, None)
        if account is not None:
            self.used -= account.counted - account.used
            self.lost -= account.counted - account.used
        else:
            account = self._accounts.pop(holder, None)
        if account is not None:
            used = max(used, account.used)
            self.used += used - account.used
            self.counted += used - account.counted
        self._ended.add(holder)

    def recall(self, holder: str) -> Gift | None:
        """Return what to send to a holder that is going to end, so that it returns what no call has reserved."""
        account = self._accounts.get(holder)
        return None if account is None else self._gift(holder, account, recalled=True)

    def _is_next(self, holder: str) -> bool:
        """Return whether the holder needs more and has waited longest."""
        return next(iter(self._needs), None) == holder

    def _gift(self, holder: str, account: _Account, *, recalled: bool) -> Gift:
        return Gift(holder, account.given, self.limit - (self.used - account.used), recalled)
