"""Which requests may come from a page in a browser: a page can send them to this machine, and so spend money."""

from __future__ import annotations

from ipaddress import ip_address

from ..http_server import HTTPRequest

FORMS = ("application/x-www-form-urlencoded", "multipart/form-data", "text/plain")
"""What a form in a page can send (HTML, 4.10.18.6), and a script without asking the server first (Fetch, 2.2.2)."""


def why_refused(request: HTTPRequest) -> tuple[int, str] | None:
    """Return the status and the reason to refuse what a page of another site may send; None for any other request."""
    headers = request.headers
    origin, host = headers.get("origin", "").lower(), headers.get("host", "").lower()
    site = headers.get("sec-fetch-site", "none")
    if site not in ("none", "same-origin") or (origin and origin not in (f"http://{host}", f"https://{host}")):
        return 403, "a page of another site may not use the gateway"
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in FORMS:
        return 415, f"the content-type {kind} is that of a form in a page: send application/json"
    return None


def names_an_address(request: HTTPRequest) -> bool:
    """Return whether its host is localhost or an address: a page can let a name of its own mean this machine."""
    host = request.headers.get("host", "")
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    return not name or name.lower() == "localhost" or _is_address(name.strip("[]"))


def is_host(text: str) -> bool:
    """Return whether a text can be the host to listen on, and is no URL and has no port."""
    return bool(text) and "/" not in text and (":" not in text or _is_address(text))


def _is_address(text: str) -> bool:
    try:
        return bool(ip_address(text))
    except ValueError:
        return False
