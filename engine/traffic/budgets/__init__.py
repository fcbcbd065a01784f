"""What calls may use: amounts are reserved before an attempt is sent, and settled when it has ended.

A budget has one account, or one for each tenant. `BudgetsState` holds the accounts, `Budgets` is their pump,
and `Spending` is what one call has reserved and spent. A call reserves the most that an attempt may use, in all of its
accounts or in none. So what was spent and what is reserved never exceed a budget together. Where that does not fit, the
call waits in the line of the account, as long as running calls may give back what it lacks; else it fails at once.

The engine knows no prices: the program gives a function (`price.py`). A shared budget is used in amounts that its
keeper lends for a time (`leases.py`).
"""
