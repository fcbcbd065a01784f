"""Known equivalents of `manystream/ray`: see `row.py`."""

from __future__ import annotations

from tests.mutants.equivalents.row import Equivalent

ROWS: tuple[Equivalent, ...] = (
    Equivalent(
        "manystream/ray/worker.py",
        "Worker.__init__",
        "self._needs_more = False",
        "False",
        "True",
        "no call starts before the first reply is confirmed, so the first exchange waits for no answer that could come",
    ),
    Equivalent(
        "manystream/ray/ray_cluster.py",
        "RayCluster.start",
        "node = self._nodes.get(instead_of) if instead_of is not None else None",
        "instead_of is not None",
        "True",
        "no worker has the name None, so the look-up gives None, too; the condition is for the type checker",
    ),
    Equivalent(
        "manystream/ray/leases.py",
        "Keeper._share",
        "if self._wanted <= self._limit:",
        "<=",
        "<",
        "if they are equal, both ways give each holder what it wants",
    ),
    Equivalent(
        "manystream/ray/leases.py",
        "Keeper._lease",
        "while account.open and account.open[-1].parts <= parts:",
        "<=",
        "<",
        "an earlier lease with the same rate ends earlier: it changes no highest rate and no sum",
    ),
    Equivalent(
        "manystream/ray/leases.py",
        "Holder.receive",
        "if left <= 0 or lease.number <= self._lease.number:",
        "<=",
        "<",
        "a lease that arrives twice has the same rate and the same end",
        29,
    ),
    Equivalent(
        "manystream/ray/watch.py", "Watch.overdue", "if pause > 0:", ">", ">=", "a pause of 0 seconds moves no deadline"
    ),
    Equivalent(
        "manystream/ray/amounts.py",
        "AmountHolder.receive",
        "if gift.recalled and free > 0 and not is_late:",
        ">",
        ">=",
        "a holder that has nothing free returns nothing",
    ),
    Equivalent(
        "manystream/ray/answers.py",
        "_open",
        "if waited >= LOCK_SECONDS:",
        ">=",
        ">",
        "no sum of floating-point tenths is exactly 10",
    ),
    *(
        Equivalent(f"manystream/ray/{module}.py", scope, text, "True", "False", reason)
        for module, scope, text, reason in (
            (
                "asker",
                "Asker._write_some",
                "for (_, row, completion), record in zip(ended, records, strict=True)",
                "`records` was made with one member for each of `ended`",
            ),
            (
                "asker",
                "Asker._write_some",
                "for (block, row, _), record in zip(ended, records, strict=True):",
                "`records` was made with one member for each of `ended`",
            ),
            (
                "driver",
                "ClusterBatch._replied",
                "keeper.grant(request, now) for keeper, request in zip(self._keepers, reply.requests, strict=True)",
                "workers ask for the limits of the batch, and there is a keeper for each",
            ),
            (
                "shared_rates",
                "RateKeeper.renew",
                "return tuple(keeper.grant(request, now) for keeper, request in zip(self._keepers, requests,"
                " strict=True))",
                "engines ask for the limits that they got with the way to this keeper",
            ),
            (
                "worker_rates",
                "_Entry.ask",
                "return [holder.ask(wanted, now) for holder, wanted in zip(self.holders, self._wanted, strict=True)]",
                "`_wanted` always has a member for each holder",
            ),
            (
                "worker_rates",
                "_Entry.measure",
                "used = (max(0.0, after - before) / seconds for after, before in zip(taken, self._taken, strict=True))",
                "both have a member for each holder",
            ),
        )
    ),
    Equivalent(
        "manystream/ray/leases.py",
        "Holder.receive",
        "if left <= 0 or lease.number <= self._lease.number:",
        "<=",
        "<",
        "a lease has one number: using it again changes nothing",
        column=29,
    ),
)
