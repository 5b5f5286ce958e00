"""``/v1/approvals``, ``/v1/tokens`` and ``/v1/status``: what a person uses. Policy decides who may."""

import asyncio
from typing import Annotated, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from palyra.api.caller import Caller
from palyra.api.described import FreeObject, PrincipalText, UlidText, described
from palyra.api.http import WrongShape, answer, read_into, read_query
from palyra.api.service import ApiService
from palyra.api.views.calls import ApprovalData, ApprovalList, NewTokenData, StatusData, TokenData, TokenList
from palyra.clock import MS_PER_SECOND, rfc3339
from palyra.identity.api_token import TokenRecord, TokenScope
from palyra.identity.principal import Principal
from palyra.identity.sqlite_tokens import create_token, list_tokens, revoke_token
from palyra.ids import ApprovalId, RunId, TokenId
from palyra.limits import MAX_CONTEXT_VALUE_CHARS, MAX_TOKEN_TTL_SECONDS
from palyra.tools.approval import Approval, ApprovalEvent, ApprovalScope, ApprovalState, Verdict
from palyra.tools.sqlite_approvals import MAX_LISTED, decide, list_approvals, read_approval

MAX_REASON_CHARS = 1024


class DecisionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    decision: Literal["approve", "deny", "withdraw"]
    scope: Literal["once", "session", "pattern", "timeboxed"] = "once"
    pattern: FreeObject | None = None
    ttl_seconds: Annotated[int, msgspec.Meta(ge=1)] | None = None
    reason: Annotated[str, msgspec.Meta(max_length=MAX_REASON_CHARS)] = ""
    argument_digest: str | None = None
    as_: PrincipalText | None = msgspec.field(name="as", default=None)


class ApprovalQuery(msgspec.Struct, frozen=True, kw_only=True):
    state: ApprovalState | None = None
    before: UlidText | None = None


class TokenBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    principal: PrincipalText
    scopes: tuple[Literal["call", "operate"], ...] = ("call",)
    ttl_seconds: Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKEN_TTL_SECONDS)] | None = None
    label: Annotated[str, msgspec.Meta(max_length=MAX_CONTEXT_VALUE_CHARS)] = ""
    run_id: UlidText | None = None


@described("Requests for approval, the newest first.", query=ApprovalQuery, data=ApprovalList)
async def list_requests(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    asked = read_query(request, ApprovalQuery)
    found = await asyncio.to_thread(
        list_approvals,
        service.store,
        asked.state,
        principal=caller.sees(),
        before=None if asked.before is None else ApprovalId.parse(asked.before),
    )
    return answer(
        {
            "approvals": [approval_view(service, approval) for approval in found],
            "next": found[-1].id if len(found) == MAX_LISTED else None,
        }
    )


@described("One request for approval.", data=ApprovalData)
async def show_request(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    approval = await asyncio.to_thread(
        read_approval, service.store, ApprovalId.parse(request.path_params["approval_id"])
    )
    service.require_visible(caller, approval)
    return answer(approval_view(service, approval))


@described("Approves, denies or withdraws a request.", body=DecisionBody, data=ApprovalData)
async def decide_request(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    caller.token.require(TokenScope.OPERATE)
    approval_id = ApprovalId.parse(request.path_params["approval_id"])
    return answer(await decide_approval(service, caller, approval_id, await read_into(request, DecisionBody)))


async def decide_approval(
    service: ApiService, caller: Caller, approval_id: ApprovalId, body: DecisionBody
) -> ApprovalData:
    """One person's answer, whichever door it came through; whoever waits for it is woken."""
    caller.token.require(TokenScope.OPERATE)
    decider = caller.speaks_for(body.as_)
    approval = await asyncio.to_thread(read_approval, service.store, approval_id)
    await service.broker.freshen_catalog()
    service.require_decider(caller, decider, approval, body.scope)
    expires_ms = _expiry(service, body)
    verdict = Verdict(
        event=ApprovalEvent(body.decision),
        by=str(decider),
        scope=ApprovalScope(body.scope),
        pattern=body.pattern,
        expires_ms=expires_ms,
        reason=body.reason,
        argument_digest=body.argument_digest,
        in_force=service.in_force(approval.binding.tool),
    )
    decided = await service.store.transact(lambda tx: decide(tx, approval_id, verdict, actor=caller.actor))
    service.broker.waiting_room.ring(approval_id)
    return approval_view(service, decided)


def _expiry(service: ApiService, body: DecisionBody) -> int | None:
    config = service.broker.config
    if body.decision != "approve" or body.ttl_seconds is None:
        return None
    ttl_ms = body.ttl_seconds * MS_PER_SECOND
    if ttl_ms > config.max_approval_ttl_ms:
        raise WrongShape(f"an approval lasts at most {config.max_approval_ttl_ms // MS_PER_SECOND} seconds here")
    return service.clock.now_ms() + ttl_ms


def approval_view(service: ApiService, approval: Approval) -> ApprovalData:
    return {
        "id": approval.id,
        "state": approval.state,
        "principal": approval.binding.principal,
        "tool": approval.binding.tool,
        "arguments": approval.arguments,
        "argument_digest": approval.binding.argument_digest,
        "bundle_digest": approval.binding.bundle_digest,
        "workspace": approval.binding.workspace,
        "session": approval.session,
        "touches": approval.touches,
        "policies": list(approval.policies),
        "scope": approval.scope,
        "pattern": approval.pattern,
        "meaning": approval.in_words(),
        "outdated": service.outdated(approval),
        "created_at": rfc3339(approval.created_ms),
        "expires_at": rfc3339(approval.expires_ms),
        "default": "deny",
        "decided_at": None if approval.decided_ms is None else rfc3339(approval.decided_ms),
        "decided_by": approval.decided_by,
        "reason": approval.reason,
        "consumed_by": approval.consumed_by,
    }


@described("Makes a token; its text is shown this once.", body=TokenBody, data=NewTokenData, status=201)
async def make_token(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    service.require_config_change(caller)
    body = await read_into(request, TokenBody)
    principal = Principal.parse(body.principal)
    run_id = "" if body.run_id is None else str(RunId.parse(body.run_id))
    ttl_ms = None if body.ttl_seconds is None else body.ttl_seconds * MS_PER_SECOND
    record, text = await service.store.transact(
        lambda tx: create_token(
            tx,
            principal,
            tuple(TokenScope(scope) for scope in body.scopes),
            actor=caller.actor,
            label=body.label,
            run_id=run_id,
            ttl_ms=ttl_ms,
        )
    )
    return answer({**token_view(record), "token": text.reveal()}, 201)


@described("The tokens, without their secrets.", data=TokenList)
async def show_tokens(service: ApiService, request: Request) -> Response:
    service.require_config_change(service.caller(request))
    found = await asyncio.to_thread(list_tokens, service.store)
    return answer({"tokens": [token_view(record) for record in found]})


@described("Ends a token at once.", data=TokenData)
async def end_token(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    service.require_config_change(caller)
    token_id = TokenId.parse(request.path_params["token_id"])
    record = await service.store.transact(lambda tx: revoke_token(tx, token_id, actor=caller.actor))
    return answer(token_view(record))


def token_view(record: TokenRecord) -> TokenData:
    return {
        "token_id": record.token_id,
        "principal": record.principal,
        "scopes": list(record.scopes),
        "label": record.label,
        "run_id": record.run_id or None,
        "created_at": rfc3339(record.created_ms),
        "expires_at": None if record.expires_ms is None else rfc3339(record.expires_ms),
        "revoked_at": None if record.revoked_ms is None else rfc3339(record.revoked_ms),
    }


@described("How the daemon stands.", data=StatusData)
async def show_status(service: ApiService, request: Request) -> Response:
    service.require_status(service.caller(request))
    return answer(service.status())
