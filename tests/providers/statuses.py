"""HTTP status → category for a body without further information: RFC 9110, 498 (Groq) and 529 (Anthropic)."""

from manystream.providers.model.provider_error import ErrorCategory

STATUSES = {
    400: ErrorCategory.INVALID_ARG, 401: ErrorCategory.AUTH, 403: ErrorCategory.AUTH, 404: ErrorCategory.NOT_FOUND,
    408: ErrorCategory.TIMEOUT, 413: ErrorCategory.INVALID_ARG, 422: ErrorCategory.INVALID_ARG,
    429: ErrorCategory.RATE_LIMIT, 498: ErrorCategory.SERVER, 500: ErrorCategory.SERVER, 501: ErrorCategory.UNKNOWN,
    502: ErrorCategory.SERVER, 503: ErrorCategory.SERVER, 504: ErrorCategory.TIMEOUT, 505: ErrorCategory.UNKNOWN,
    529: ErrorCategory.SERVER,
}  # fmt: skip
OTHERS = (402, 405, 409, 418, 424, 451, 499, 600)
"""Statuses of failures without a category."""

OF_SERVERS = (506, 507, 511, 520, 521, 522, 523, 524, 525, 526, 527, 530, 561, 598, 599)
"""Statuses of a failed server that no table names: Cloudflare's, and those of load balancers."""

CASES = [
    *STATUSES.items(),
    *((status, ErrorCategory.UNKNOWN) for status in OTHERS),
    *((status, ErrorCategory.SERVER) for status in OF_SERVERS),
]
