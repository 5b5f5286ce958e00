"""The endpoints for calls, approvals, tokens, secrets and the daemon's state. Each operation is written once."""

from collections.abc import Mapping
from typing import Any, Literal

from palyra.client.protocol import (
    BadAnswer,
    BadRequestValue,
    Operation,
    Request,
    api_path,
    convert_view,
    convert_views,
    delete,
    fetch_view,
    fetch_views,
    get,
    path_of,
    post,
    read_answer,
    send_json,
    take_secret,
)
from palyra.client.views import (
    ApprovalsView,
    ApprovalView,
    ArgumentsView,
    CallView,
    NewToken,
    RotationView,
    RunView,
    SecretsView,
    SecretView,
    StatusView,
    TokenView,
    ToolView,
)
from palyra.errors import Unavailable
from palyra.limits import MAX_CALL_TIMEOUT_MS
from palyra.secret import Secret

# A hundred thousand secrets take some ten seconds; a slow disk several times that.
ROTATION_PATIENCE_MS = 600_000

Scope = Literal["once", "session", "pattern", "timeboxed"]


class NotReady(Unavailable):
    code = "client.not_ready"
    hint = "the daemon is starting, stopping or out of order; its log says which"


def call(
    tool: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    arguments_json: str | None = None,
    run_id: str | None = None,
    session: str | None = None,
    channel: str | None = None,
    device: str | None = None,
    principal: str | None = None,
    wait_ms: int | None = None,
    timeout_ms: int | None = None,
    tier: str | None = None,
) -> Operation[CallView]:
    """Make one tool call, and return it once it has succeeded.

    Raise NeedsApprovalError if a person must approve it, and ApiError for a denial, a refusal or a failed call. The
    error's ``call`` is the recorded call. ``wait_ms`` lets the server wait that long for a person's approval first.
    ``arguments_json`` is sent as typed, for the server's strict parser to judge.
    """
    if arguments is not None and arguments_json is not None:
        raise BadRequestValue("give arguments or arguments_json, not both")
    body = {
        "tool": tool,
        "arguments": ({} if arguments is None else dict(arguments)) if arguments_json is None else None,
        "arguments_json": arguments_json,
        "run_id": run_id,
        "session": session,
        "channel": channel,
        "device": device,
        "principal": principal,
        "wait_ms": wait_ms,
        "timeout_ms": timeout_ms,
        "tier": tier,
    }
    patience_ms = (wait_ms or 0) + (MAX_CALL_TIMEOUT_MS if timeout_ms is None else timeout_ms)
    return fetch_view(post(api_path("tool-calls"), body, patience_ms=patience_ms), CallView)


def call_status(call_id: str) -> Operation[CallView]:
    """Return the call in its present state."""
    return fetch_view(get(api_path("tool-calls", call_id)), CallView)


def call_arguments(call_id: str) -> Operation[ArgumentsView]:
    """Return the whole arguments of a call, if policy lets this operator read the record. That is recorded."""
    return fetch_view(get(api_path("tool-calls", call_id, "arguments")), ArgumentsView)


def cancel(call_id: str) -> Operation[CallView]:
    """Stop a running call, with everything it started."""
    return fetch_view(delete(api_path("tool-calls", call_id)), CallView)


def tools() -> Operation[tuple[ToolView, ...]]:
    return fetch_views(get(api_path("tools")), "tools", ToolView)


def tool(name: str) -> Operation[ToolView]:
    return fetch_view(get(api_path("tools", name)), ToolView)


def start_run(budget: Mapping[str, int] | None = None, *, principal: str | None = None) -> Operation[RunView]:
    """Start a run with a budget that later calls with its ``run_id`` share."""
    body = {"budget": None if budget is None else dict(budget), "principal": principal}
    return fetch_view(post(api_path("runs"), body), RunView)


def run(run_id: str) -> Operation[RunView]:
    return fetch_view(get(api_path("runs", run_id)), RunView)


def approvals_page(
    state: str | None = "pending", *, before: str | None = None, after: str | None = None
) -> Operation[ApprovalsView]:
    """List one page of the approvals in one state, with ``state=None`` in any.

    Those that wait come oldest first, and ``next`` goes into ``after``. Others come newest first, and it goes into
    ``before``.
    """
    query = {"state": state, "before": before, "after": after}
    page = read_answer((yield get(api_path("approvals", query=query))))
    following = page.get("next") if isinstance(page, dict) else None
    found = convert_views(page, "approvals", ApprovalView)
    return ApprovalsView(approvals=found, next=following if isinstance(following, str) else None)


def approvals(state: str | None = "pending") -> Operation[tuple[ApprovalView, ...]]:
    """List all that waits, the oldest first; or the newest in another state, with ``state=None`` in any."""
    page = yield from approvals_page(state)
    found = list(page.approvals)
    while state == "pending" and page.next is not None:
        page = yield from approvals_page(state, after=page.next)
        found += page.approvals
    return tuple(found)


def approval(approval_id: str) -> Operation[ApprovalView]:
    return fetch_view(get(api_path("approvals", approval_id)), ApprovalView)


def approve(
    approval_id: str,
    *,
    scope: Scope = "once",
    pattern: Mapping[str, Any] | None = None,
    ttl_seconds: int | None = None,
    reason: str | None = None,
    argument_digest: str | None = None,
    decided_as: str | None = None,
) -> Operation[ApprovalView]:
    """Approve. With ``argument_digest`` (of the arguments shown), a request that changed meanwhile is refused."""
    body = {
        "decision": "approve",
        "scope": scope,
        "pattern": None if pattern is None else dict(pattern),
        "ttl_seconds": ttl_seconds,
        "reason": reason,
        "argument_digest": argument_digest,
        "as": decided_as,
    }
    return fetch_view(post(api_path("approvals", approval_id, "decision"), body), ApprovalView)


def deny(approval_id: str, *, reason: str | None = None, decided_as: str | None = None) -> Operation[ApprovalView]:
    body = {"decision": "deny", "reason": reason, "as": decided_as}
    return fetch_view(post(api_path("approvals", approval_id, "decision"), body), ApprovalView)


def withdraw(approval_id: str, *, reason: str | None = None, decided_as: str | None = None) -> Operation[ApprovalView]:
    """Withdraw a request that waits, or an approval that still holds."""
    body = {"decision": "withdraw", "reason": reason, "as": decided_as}
    return fetch_view(post(api_path("approvals", approval_id, "decision"), body), ApprovalView)


def create_token(
    principal: str,
    *,
    scopes: tuple[str, ...] | None = None,
    ttl_seconds: int | None = None,
    label: str | None = None,
    run_id: str | None = None,
) -> Operation[NewToken]:
    """Make a token for one principal; with ``run_id``, one that works in that run only."""
    body = {
        "principal": principal,
        "scopes": scopes,
        "ttl_seconds": ttl_seconds,
        "label": label,
        "run_id": run_id,
    }
    response = yield post(api_path("tokens"), body)
    token, shown = take_secret(read_answer(response), "token")
    return NewToken(view=convert_view(shown, TokenView), token=token)


def tokens() -> Operation[tuple[TokenView, ...]]:
    return fetch_views(get(api_path("tokens")), "tokens", TokenView)


def revoke_token(token_id: str) -> Operation[TokenView]:
    return fetch_view(delete(api_path("tokens", token_id)), TokenView)


def put_secret(ref: str, value: Secret) -> Operation[SecretView]:
    """Store a new version of a secret, which is in force from then on."""
    return fetch_view(send_json("PUT", api_path("vault", "secrets", ref), {"value": value.reveal()}), SecretView)


def secrets(scope: str | None = None, *, after: str | None = None) -> Operation[SecretsView]:
    """List one page of the secrets, without their values."""
    return fetch_view(get(api_path("vault", "secrets", query={"scope": scope, "after": after})), SecretsView)


def delete_secret(ref: str) -> Operation[SecretView]:
    """Destroy every version of a secret."""
    return fetch_view(delete(api_path("vault", "secrets", ref)), SecretView)


def rotate_vault(to: str | None = None) -> Operation[RotationView]:
    """Rewrap all secrets with a new key, kept in the place that ``to`` names or in the configured one."""
    body = {"to": to}
    return fetch_view(post(api_path("vault", "rotate"), body, patience_ms=ROTATION_PATIENCE_MS), RotationView)


def reveal_secret(ref: str, *, confirm: str, version: int | None = None) -> Operation[Secret]:
    """Return a secret's value, if policy lets this operator see it. ``confirm`` is the name as a person typed it."""
    body = {"ref": ref, "confirm": confirm, "version": version}
    response = yield post(api_path("vault", "reveal"), body)
    value, _ = take_secret(read_answer(response), "value")
    return value


def status() -> Operation[StatusView]:
    return fetch_view(get(api_path("status")), StatusView)


def health() -> Operation[None]:
    """Return if the daemon lives; raise otherwise."""
    yield from _probe("healthz")


def ready() -> Operation[None]:
    """Return if the daemon takes calls; raise otherwise."""
    yield from _probe("readyz")


def _probe(path: str) -> Operation[None]:
    response = yield get(path_of(path))
    if response.status != 200:
        raise NotReady(f"/{path} answered {response.status}")


def metrics() -> Operation[str]:
    """Return the daemon's metrics in the text format of Prometheus."""
    response = yield Request(method="GET", path=path_of("metrics"), headers=(("accept", "text/plain"),))
    if response.status != 200:
        read_answer(response)
        raise BadAnswer(f"/metrics answered {response.status}")
    return response.body.decode("utf-8", "replace")
