"""HTTP status → category for a body without further information: RFC 9110, and 529, Anthropic's "overloaded"."""

from __future__ import annotations

from manystream.providers.errors import ErrorCategory

STATUSES = {
    400: ErrorCategory.INVALID_ARG,
    401: ErrorCategory.AUTH,
    403: ErrorCategory.AUTH,
    404: ErrorCategory.NOT_FOUND,
    408: ErrorCategory.TIMEOUT,
    413: ErrorCategory.INVALID_ARG,
    422: ErrorCategory.INVALID_ARG,
    429: ErrorCategory.RATE_LIMIT,
    500: ErrorCategory.SERVER,
    502: ErrorCategory.SERVER,
    503: ErrorCategory.SERVER,
    504: ErrorCategory.TIMEOUT,
    529: ErrorCategory.SERVER,
}
OTHERS = (402, 405, 409, 418, 424, 451, 501, 505)
"""Statuses of failures without a category."""

CASES = [*STATUSES.items(), *((status, ErrorCategory.UNKNOWN) for status in OTHERS)]
