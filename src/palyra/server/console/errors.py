"""The errors of the console, and problem documents (RFC 9457)."""

from typing import TYPE_CHECKING, Any

import msgspec

from palyra.errors import Denied, InvalidInput, LimitExceeded, PalyraError, exit_code_of
from palyra.server.console.limits import MAX_IDEMPOTENCY_KEY_CHARS

if TYPE_CHECKING:
    from starlette.responses import Response


class NotLoggedIn(Denied):
    code = "console.not_logged_in"
    hint = "log in with the token that `palyra up` prints"
    http_status = 401


class LoginRefused(Denied):
    """The one answer for every bad token, whether wrong, revoked, expired or malformed."""

    code = "console.login_refused"
    hint = "paste the whole token, as `palyra up` prints it; it begins with plr_"
    http_status = 401


class TooManyLogins(LimitExceeded):
    code = "console.too_many_logins"
    hint = "wait a minute, then try again"


class RoleMissing(Denied):
    code = "console.role_missing"
    hint = "the groups operators and viewers, or a policy of yours, say who may do what on the console"


class CrossOrigin(Denied):
    code = "console.cross_origin"
    hint = "only the console's own pages may send this"


class CsrfMissing(Denied):
    code = "console.csrf"
    hint = "reload the page and try again"


class JsonOnly(InvalidInput):
    code = "console.json_only"
    hint = "send application/json; the pages do so by themselves once their script has loaded"
    http_status = 415


class NoSuchPage(InvalidInput):
    code = "console.no_such_page"
    hint = "from the overview the menu leads to every page there is"
    http_status = 404


class BadQuery(InvalidInput):
    code = "console.bad_query"
    hint = "go back to the page itself, without the part after the question mark"


class BadIdempotencyKey(InvalidInput):
    code = "console.bad_idempotency_key"
    hint = f"send 1 to {MAX_IDEMPOTENCY_KEY_CHARS} visible ASCII characters, or no Idempotency-Key at all"


class KeyReused(InvalidInput):
    code = "console.key_reused"
    hint = "a new request needs a new Idempotency-Key"
    http_status = 422


class KeyInUse(InvalidInput):
    code = "console.key_in_use"
    hint = "the first request with this Idempotency-Key has no answer yet: look at its result first"
    http_status = 409


class TooManyPagesOpen(LimitExceeded):
    code = "console.too_many_pages"
    hint = "close some of the console's tabs: this one shows the present state, and has to be reloaded by hand"


class Busy(LimitExceeded):
    code = "console.busy"
    hint = "wait until it has ended; its result shows on the page"


MEDIA_TYPE = "application/problem+json"


def problem_of(error: PalyraError) -> dict[str, Any]:
    shown = error.as_dict()
    return {
        "type": f"urn:palyra:error:{shown['code']}",
        "title": shown["code"],
        "status": error.http_status,
        "detail": error.message,
        **shown,
    }


def answer_problem(error: PalyraError) -> "Response":
    from starlette.responses import Response

    from palyra.server.http.envelope import EXIT_CODE_HEADER

    headers = {EXIT_CODE_HEADER: str(int(exit_code_of(error))), "Cache-Control": "no-store"}
    if (seconds := error.details.get("retry_after_seconds")) is not None:
        headers["Retry-After"] = str(seconds)
    document = problem_of(error)
    return Response(msgspec.json.encode(document), document["status"], headers=headers, media_type=MEDIA_TYPE)
