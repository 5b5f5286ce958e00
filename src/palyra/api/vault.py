"""``/v1/vault``: secrets put, listed, deleted and rotated by those whom policy lets. Values go in; one way is out."""

import asyncio
from http import HTTPStatus
from typing import Annotated, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from palyra.api.described import RefText, ScopeText, described
from palyra.api.http import answer, answer_error, read_into, read_query
from palyra.api.service import ApiService
from palyra.api.views.calls import RevealedSecret, SecretData, SecretList
from palyra.clock import rfc3339
from palyra.errors import Unavailable
from palyra.secret import Secret
from palyra.vault.errors import NotConfirmed
from palyra.vault.limits import MAX_LISTED, MAX_VALUE_BYTES
from palyra.vault.record import RotationReport, SecretInfo, UseNote
from palyra.vault.ref import SecretRef, SecretScope

# For the document only: an empty value has its own code.
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


@described("Stores a new version of a secret.", body=SecretBody, data=SecretData, status=201)
async def put_secret(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    ref = SecretRef.parse(request.path_params["ref"])
    service.require_vault_manager(caller, ref)
    value = Secret((await read_into(request, SecretBody)).value)
    info = await service.vault.put(ref, value, actor=caller.actor)
    return answer(secret_view(info), 201)


@described("The secrets by name, without their values.", query=SecretQuery, data=SecretList)
async def list_secrets(service: ApiService, request: Request) -> Response:
    service.require_vault_manager(service.caller(request))
    asked = read_query(request, SecretQuery)
    found = await asyncio.to_thread(
        service.vault.list,
        None if asked.scope is None else SecretScope.parse(asked.scope),
        after=None if asked.after is None else SecretRef.parse(asked.after),
        limit=MAX_LISTED,
    )
    status = await service.vault.status()
    return answer(
        {
            "secrets": [secret_view(info) for info in found],
            "next": str(found[-1].ref) if len(found) == MAX_LISTED else None,
            "vault": msgspec.to_builtins(status),
        }
    )


@described("Destroys every version of a secret.", data=SecretData)
async def delete_secret(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    ref = SecretRef.parse(request.path_params["ref"])
    service.require_vault_manager(caller, ref)
    return answer(secret_view(await service.vault.delete(ref, actor=caller.actor)))


@described(
    "Puts all secrets under a new key.",
    body=RotateBody,
    data=RotationReport,
    errors={409: "the place asked for has no key", 503: "the key of the vault is not there"},
)
async def rotate_vault(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    service.require_vault_manager(caller)
    body = await read_into(request, RotateBody)
    try:
        report = await service.vault.rotate(body.to, actor=caller.actor)
    except Unavailable as error:
        # The place that was asked for has no key: whoever asked can choose another one, nothing here is broken.
        return answer_error(error, status=None if body.to is None else HTTPStatus.CONFLICT)
    return answer(msgspec.to_builtins(report))


@described("Shows a value to a person.", body=RevealBody, data=RevealedSecret)
async def reveal_secret(service: ApiService, request: Request) -> Response:
    """``confirm`` is the name as the person typed it. That a person typed it is the word of whoever holds the token."""
    caller = service.caller(request)
    body = await read_into(request, RevealBody)
    ref = SecretRef.parse(body.ref)
    policies = service.require_vault_reader(caller, ref)
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
    secret = await service.vault.reveal(ref, version=body.version, note=note)
    # The one place where a secret is meant to be seen.
    return answer({"ref": str(ref), "value": secret.reveal()})


def secret_view(info: SecretInfo) -> SecretData:
    return {
        "ref": str(info.ref),
        "scope": str(info.ref.scope),
        "key": info.ref.key,
        "version": info.version,
        "oldest_version": info.oldest_version,
        "created_at": rfc3339(info.created_ms),
        "updated_at": rfc3339(info.updated_ms),
        "updated_by": info.updated_by,
    }
