"""Who is next: calls wait in classes of priority, and within a class by the least service of their tenant.

A permit is what a call has in a queue, and what it holds after it was sent. The service of a tenant is the tokens that
its calls have used or are expected to use. The tenant with the least goes next, so a tenant with one call does not wait
for a thousand calls of another. A class that was passed over for 30 s is served once.

A pump (`pump.py`) takes one call out of a line, notifies it, and looks again. `Limiter`, `Router` and `Budgets` are
pumps. A notified call may start and end others, so no list of calls is made beforehand.
"""
