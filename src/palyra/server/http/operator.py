"""``/v1/approvals``, ``/v1/tokens``, ``/v1/status`` and ``/v1/vault``: the routes of people. Policy decides who may."""

import asyncio
from http import HTTPStatus
from typing import Annotated, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from palyra.clock import MS_PER_SECOND
from palyra.errors import Unavailable
from palyra.identity.api_tokens import TokenRecord, TokenScope, create_token, list_tokens, revoke_token
from palyra.ids import ApprovalId, Principal, RunId, TokenId
from palyra.limits import MAX_CONTEXT_VALUE_CHARS, MAX_TOKEN_TTL_SECONDS, MIB
from palyra.pipeline.domain.approval import Approval, ApprovalEvent, ApprovalScope, ApprovalState, Verdict
from palyra.pipeline.store.approval_tables import MAX_LISTED_APPROVALS, decide, list_approvals, read_approval
from palyra.secret import Secret
from palyra.server.context import ApiService, Caller
from palyra.server.http.envelope import WrongShape, answer, answer_error, read_into, read_query, to_view
from palyra.server.http.route_schema import FreeObject, PrincipalText, RefText, ScopeText, UlidText, describe
from palyra.server.http.views import (
    ApprovalData,
    ApprovalList,
    NewTokenData,
    RevealedSecret,
    SecretData,
    SecretList,
    StatusData,
    TokenData,
    TokenList,
)
from palyra.vault.access import secret_entity
from palyra.vault.key_source import NotConfirmed
from palyra.vault.limits import MAX_LISTED_SECRETS, MAX_VALUE_BYTES
from palyra.vault.reference import RotationReport, SecretInfo, SecretRef, SecretScope, UseNote

MAX_REASON_CHARS = 1024
# Half of the answer that a client reads.
MAX_LIST_BYTES = 4 * MIB


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
    after: UlidText | None = None


class TokenBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    principal: PrincipalText
    scopes: tuple[Literal["call", "operate"], ...] = ("call",)
    ttl_seconds: Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKEN_TTL_SECONDS)] | None = None
    label: Annotated[str, msgspec.Meta(max_length=MAX_CONTEXT_VALUE_CHARS)] = ""
    run_id: UlidText | None = None


@describe(
    "Requests for approval: those that wait oldest first, others newest first.", query=ApprovalQuery, data=ApprovalList
)
async def list_requests(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    query = read_query(request, ApprovalQuery)
    found = await asyncio.to_thread(
        list_approvals,
        service.store,
        query.state,
        principal=caller.sees(),
        before=None if query.before is None else ApprovalId.parse(query.before),
        after=None if query.after is None else ApprovalId.parse(query.after),
        oldest_first=query.after is not None or (query.state is ApprovalState.PENDING and query.before is None),
    )
    views = [approval_view(service, approval) for approval in found]
    page = views[: _count_fitting(views)]
    more = len(page) < len(views) or len(found) == MAX_LISTED_APPROVALS
    return answer({"approvals": page, "next": page[-1]["id"] if more else None})


def _count_fitting(views: list[ApprovalData]) -> int:
    """Return how many of them an answer takes. A client reads no longer one, and an agent chooses the arguments."""
    size = 0
    for number, view in enumerate(views):
        size += len(msgspec.json.encode(view))
        if number and size > MAX_LIST_BYTES:
            return number
    return len(views)


@describe("One request for approval.", data=ApprovalData)
async def show_request(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    approval = await asyncio.to_thread(
        read_approval, service.store, ApprovalId.parse(request.path_params["approval_id"])
    )
    service.require_visible(caller, approval)
    return answer(approval_view(service, approval))


@describe("Approves, denies or withdraws a request.", body=DecisionBody, data=ApprovalData)
async def decide_request(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    caller.token.require(TokenScope.OPERATE)
    approval_id = ApprovalId.parse(request.path_params["approval_id"])
    return answer(await decide_approval(service, caller, approval_id, await read_into(request, DecisionBody)))


async def decide_approval(
    service: ApiService, caller: Caller, approval_id: ApprovalId, body: DecisionBody
) -> ApprovalData:
    """Record a person's decision, from the API or the console, and wake the calls that wait for it."""
    caller.token.require(TokenScope.OPERATE)
    decider = caller.on_behalf_of(body.as_)
    approval = await asyncio.to_thread(read_approval, service.store, approval_id)
    await service.broker.refresh_catalog()
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
        in_force=service.in_force(approval.binding),
    )
    decided = await service.store.transact(lambda tx: decide(tx, approval_id, verdict, actor=caller.actor))
    service.broker.approval_waiters.notify(approval_id)
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
    binding = approval.binding
    return to_view(
        ApprovalData,
        approval,
        principal=binding.principal,
        tool=binding.tool,
        argument_digest=binding.argument_digest,
        bundle_digest=binding.bundle_digest,
        workspace=binding.workspace,
        place=binding.place,
        tier=binding.tier,
        obligations=binding.obligations,
        files=binding.files,
        meaning=approval.in_words(),
        outdated=service.outdated(approval),
        default="deny",
    )


@describe("Makes a token; its text is shown this once.", body=TokenBody, data=NewTokenData, status=201)
async def make_token(service: ApiService, request: Request) -> Response:
    caller = service.admit_operator(request, "config.change")
    record, text = await store_token(service, await read_into(request, TokenBody), caller.actor)
    return answer({**token_view(record), "token": text.reveal()}, 201)


async def store_token(service: ApiService, body: TokenBody, actor: str) -> tuple[TokenRecord, Secret]:
    principal = Principal.parse(body.principal)
    scopes = tuple(TokenScope(scope) for scope in body.scopes)
    run_id = "" if body.run_id is None else str(RunId.parse(body.run_id))
    ttl_ms = None if body.ttl_seconds is None else body.ttl_seconds * MS_PER_SECOND
    return await service.store.transact(
        lambda tx: create_token(tx, principal, scopes, actor=actor, label=body.label, run_id=run_id, ttl_ms=ttl_ms)
    )


@describe("The tokens, without their secrets.", data=TokenList)
async def show_tokens(service: ApiService, request: Request) -> Response:
    service.admit_operator(request, "config.change")
    found = await asyncio.to_thread(list_tokens, service.store)
    return answer({"tokens": [token_view(record) for record in found]})


@describe("Ends a token at once.", data=TokenData)
async def end_token(service: ApiService, request: Request) -> Response:
    caller = service.admit_operator(request, "config.change")
    token_id = TokenId.parse(request.path_params["token_id"])
    record = await service.store.transact(lambda tx: revoke_token(tx, token_id, actor=caller.actor))
    return answer(token_view(record))


def token_view(record: TokenRecord) -> TokenData:
    return to_view(TokenData, record, run_id=record.run_id or None)


@describe("How the daemon stands.", data=StatusData)
async def show_status(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    service.require_permitted(caller, "status.read")
    status = service.status()
    if not caller.operates:
        status["workspace"] = service.broker.config.workspaces.find(caller.principal)
        status.pop("workspaces", None)
    return answer(status)


# ``/v1/vault``. No route but ``reveal`` returns a value.

# For the document only: the vault refuses an empty value, with its own code.
_VALUE = msgspec.Meta(extra_json_schema={"minLength": 1, "description": f"at most {MAX_VALUE_BYTES} bytes of UTF-8"})


class SecretBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    value: Annotated[str, _VALUE]


class SecretQuery(msgspec.Struct, frozen=True, kw_only=True):
    scope: ScopeText | None = None
    after: RefText | None = None


class RevealBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    ref: RefText
    confirm: str
    version: Annotated[int, msgspec.Meta(ge=1)] | None = None


class RotateBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    to: Literal["file", "keyring", "passphrase", "environment"] | None = None


@describe("Stores a new version of a secret.", body=SecretBody, data=SecretData, status=201)
async def put_secret(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    ref = SecretRef.parse(request.path_params["ref"])
    service.require_operator(caller, "vault.manage", secret_entity(ref))
    value = Secret((await read_into(request, SecretBody)).value)
    info = await service.vault().put(ref, value, actor=caller.actor)
    return answer(secret_view(info), 201)


@describe("The secrets by name, without their values.", query=SecretQuery, data=SecretList)
async def list_secrets(service: ApiService, request: Request) -> Response:
    service.admit_operator(request, "vault.manage")
    query = read_query(request, SecretQuery)
    found = await asyncio.to_thread(
        service.vault().list,
        None if query.scope is None else SecretScope.parse(query.scope),
        after=None if query.after is None else SecretRef.parse(query.after),
        limit=MAX_LISTED_SECRETS,
    )
    status = await service.vault().status()
    return answer(
        {
            "secrets": [secret_view(info) for info in found],
            "next": str(found[-1].ref) if len(found) == MAX_LISTED_SECRETS else None,
            "vault": msgspec.to_builtins(status),
        }
    )


@describe("Destroys every version of a secret.", data=SecretData)
async def delete_secret(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    ref = SecretRef.parse(request.path_params["ref"])
    service.require_operator(caller, "vault.manage", secret_entity(ref))
    return answer(secret_view(await service.vault().delete(ref, actor=caller.actor)))


@describe(
    "Puts all secrets under a new key.",
    body=RotateBody,
    data=RotationReport,
    errors={409: "the requested place has no key", 503: "the key of the vault is missing"},
)
async def rotate_vault(service: ApiService, request: Request) -> Response:
    caller = service.admit_operator(request, "vault.manage")
    body = await read_into(request, RotateBody)
    try:
        report = await service.vault().rotate(body.to, actor=caller.actor)
        await service.arguments.rewrap(body.to)
    except Unavailable as error:
        # The requested place has no key: the caller can choose another place, and nothing here is broken.
        return answer_error(error, status=None if body.to is None else HTTPStatus.CONFLICT)
    return answer(msgspec.to_builtins(report))


@describe("Shows a value to a person.", body=RevealBody, data=RevealedSecret)
async def reveal_secret(service: ApiService, request: Request) -> Response:
    """Reveal a secret to a person, who typed its name as ``confirm``. The token's holder vouches for that."""
    caller = service.caller(request)
    body = await read_into(request, RevealBody)
    ref = SecretRef.parse(body.ref)
    policies = service.require_operator(caller, "vault.reveal", secret_entity(ref))
    if body.confirm != str(ref):
        raise NotConfirmed(f"the name typed is not {ref}")
    note = UseNote(
        actor=caller.actor,
        principal=caller.actor,
        purpose="reveal",
        channel=service.channel,
        policies=policies,
        bundle_digest=service.policy.bundle_digest,
    )
    secret = await service.vault().reveal(ref, version=body.version, note=note)
    # The one place where a secret is meant to be seen.
    return answer({"ref": str(ref), "value": secret.reveal()})


def secret_view(info: SecretInfo) -> SecretData:
    return to_view(SecretData, info, ref=str(info.ref), scope=str(info.ref.scope), key=info.ref.key)
