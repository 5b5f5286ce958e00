"""Which page sent a request, as far as a browser tells. Another site, or another port of this machine, gets nothing."""

from collections.abc import Mapping

from palyra.console.errors import CrossOrigin

SAFE_METHODS = frozenset(("GET", "HEAD"))
_OURS = frozenset(("same-origin", "none"))


def check_origin(method: str, origin: str, headers: Mapping[str, str]) -> None:
    """``origin`` is the console's own, as the request names it in its Host.

    A write has to name this origin itself. A read may come without one, and a link from elsewhere may lead here: a
    page is then opened in its own window, where nobody else reads it.
    """
    named = headers.get("origin")
    if named is not None and named != origin:
        raise CrossOrigin("another page sent this request")
    if method not in SAFE_METHODS:
        if named is None:
            raise CrossOrigin("the request does not say which page sent it")
        return
    site = headers.get("sec-fetch-site")
    if site is not None and site not in _OURS:
        opened = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        if not opened:
            raise CrossOrigin("another page asked for this")
