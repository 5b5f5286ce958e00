"""Every endpoint of the API, once: the request it makes and what its answer becomes."""

from collections.abc import Mapping
from typing import Any, Literal

from palyra.client.protocol import (
    BadAnswer,
    BadRequestValue,
    Operation,
    Request,
    convert_view,
    convert_views,
    get,
    path_of,
    read_answer,
    send_json,
)
from palyra.client.views import (
    ApprovalView,
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
    """Asks for one tool call and returns it once it has succeeded.

    Every other ending is raised: NeedsApprovalError where a person must be asked, ApiError for a denial, a refusal and
    a call that ran and failed; its ``call`` is the call as it was recorded. ``wait_ms`` lets the server wait that long
    for a person's approval first. ``arguments_json`` is sent as typed, for the server's strict parser to judge.
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
    response = yield send_json("POST", path_of("v1", "tool-calls"), body, patience_ms=patience_ms)
    return convert_view(read_answer(response), CallView)


def call_status(call_id: str) -> Operation[CallView]:
    """The call as it stands now."""
    response = yield get(path_of("v1", "tool-calls", call_id))
    return convert_view(read_answer(response), CallView)


def cancel(call_id: str) -> Operation[CallView]:
    """Asks a running call to stop, with everything it started."""
    response = yield Request(method="DELETE", path=path_of("v1", "tool-calls", call_id))
    return convert_view(read_answer(response), CallView)


def tools() -> Operation[tuple[ToolView, ...]]:
    response = yield get(path_of("v1", "tools"))
    return convert_views(read_answer(response), "tools", ToolView)


def tool(name: str) -> Operation[ToolView]:
    response = yield get(path_of("v1", "tools", name))
    return convert_view(read_answer(response), ToolView)


def start_run(budget: Mapping[str, int] | None = None, *, principal: str | None = None) -> Operation[RunView]:
    """A run of its own, with a budget that later calls with its ``run_id`` share."""
    body = {"budget": None if budget is None else dict(budget), "principal": principal}
    response = yield send_json("POST", path_of("v1", "runs"), body)
    return convert_view(read_answer(response), RunView)


def run(run_id: str) -> Operation[RunView]:
    response = yield get(path_of("v1", "runs", run_id))
    return convert_view(read_answer(response), RunView)


def approvals(state: str | None = "pending") -> Operation[tuple[ApprovalView, ...]]:
    """The approvals in one state, or all with ``state=None``."""
    response = yield get(path_of("v1", "approvals", query={"state": state}))
    return convert_views(read_answer(response), "approvals", ApprovalView)


def approval(approval_id: str) -> Operation[ApprovalView]:
    response = yield get(path_of("v1", "approvals", approval_id))
    return convert_view(read_answer(response), ApprovalView)


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
    """Says yes. With ``argument_digest`` (of what was shown) a request that changed meanwhile is not approved."""
    body = {
        "decision": "approve",
        "scope": scope,
        "pattern": None if pattern is None else dict(pattern),
        "ttl_seconds": ttl_seconds,
        "reason": reason,
        "argument_digest": argument_digest,
        "as": decided_as,
    }
    response = yield send_json("POST", path_of("v1", "approvals", approval_id, "decision"), body)
    return convert_view(read_answer(response), ApprovalView)


def deny(approval_id: str, *, reason: str | None = None, decided_as: str | None = None) -> Operation[ApprovalView]:
    body = {"decision": "deny", "reason": reason, "as": decided_as}
    response = yield send_json("POST", path_of("v1", "approvals", approval_id, "decision"), body)
    return convert_view(read_answer(response), ApprovalView)


def withdraw(approval_id: str, *, reason: str | None = None, decided_as: str | None = None) -> Operation[ApprovalView]:
    """Takes back a request that waits, or a yes that still stands."""
    body = {"decision": "withdraw", "reason": reason, "as": decided_as}
    response = yield send_json("POST", path_of("v1", "approvals", approval_id, "decision"), body)
    return convert_view(read_answer(response), ApprovalView)


def create_token(
    principal: str,
    *,
    scopes: tuple[str, ...] | None = None,
    ttl_seconds: int | None = None,
    label: str | None = None,
    run_id: str | None = None,
) -> Operation[NewToken]:
    """A token for one principal; with ``run_id``, one that works in that run only."""
    body = {
        "principal": principal,
        "scopes": scopes,
        "ttl_seconds": ttl_seconds,
        "label": label,
        "run_id": run_id,
    }
    response = yield send_json("POST", path_of("v1", "tokens"), body)
    data = read_answer(response)
    if not isinstance(data, dict) or not isinstance(data.get("token"), str):
        raise BadAnswer("the server made a token and did not show it")
    shown = {name: value for name, value in data.items() if name != "token"}
    return NewToken(view=convert_view(shown, TokenView), token=Secret(data["token"]))


def tokens() -> Operation[tuple[TokenView, ...]]:
    response = yield get(path_of("v1", "tokens"))
    return convert_views(read_answer(response), "tokens", TokenView)


def revoke_token(token_id: str) -> Operation[TokenView]:
    response = yield Request(method="DELETE", path=path_of("v1", "tokens", token_id))
    return convert_view(read_answer(response), TokenView)


def put_secret(ref: str, value: Secret) -> Operation[SecretView]:
    """Stores a new version of a secret, which is in force from then on."""
    response = yield send_json("PUT", path_of("v1", "vault", "secrets", ref), {"value": value.reveal()})
    return convert_view(read_answer(response), SecretView)


def secrets(scope: str | None = None, *, after: str | None = None) -> Operation[SecretsView]:
    """One page of the secrets there are, without their values."""
    response = yield get(path_of("v1", "vault", "secrets", query={"scope": scope, "after": after}))
    return convert_view(read_answer(response), SecretsView)


def delete_secret(ref: str) -> Operation[SecretView]:
    """Destroys every version of a secret."""
    response = yield Request(method="DELETE", path=path_of("v1", "vault", "secrets", ref))
    return convert_view(read_answer(response), SecretView)


def rotate_vault(to: str | None = None) -> Operation[RotationView]:
    """Puts all secrets under a new key, kept in the place ``to`` names or the configured one."""
    body = {"to": to}
    response = yield send_json("POST", path_of("v1", "vault", "rotate"), body, patience_ms=ROTATION_PATIENCE_MS)
    return convert_view(read_answer(response), RotationView)


def reveal_secret(ref: str, *, confirm: str, version: int | None = None) -> Operation[Secret]:
    """A secret's value, where a policy lets this operator see it. ``confirm`` is the name as a person typed it."""
    body = {"ref": ref, "confirm": confirm, "version": version}
    response = yield send_json("POST", path_of("v1", "vault", "reveal"), body)
    data = read_answer(response)
    if not isinstance(data, dict) or not isinstance(data.get("value"), str):
        raise BadAnswer("the server revealed a secret and did not show it")
    return Secret(data["value"])


def status() -> Operation[StatusView]:
    response = yield get(path_of("v1", "status"))
    return convert_view(read_answer(response), StatusView)


def health() -> Operation[None]:
    """Returns when the daemon lives; raises otherwise."""
    yield from _probe("healthz")


def ready() -> Operation[None]:
    """Returns when the daemon takes calls; raises otherwise."""
    yield from _probe("readyz")


def _probe(path: str) -> Operation[None]:
    response = yield get(path_of(path))
    if response.status != 200:
        raise NotReady(f"/{path} answered {response.status}")


def metrics() -> Operation[str]:
    """The daemon's metrics, in Prometheus' text format."""
    response = yield Request(method="GET", path=path_of("metrics"), headers=(("accept", "text/plain"),))
    if response.status != 200:
        read_answer(response)
        raise BadAnswer(f"/metrics answered {response.status}")
    return response.body.decode("utf-8", "replace")
