"""``/v1/vault``: secrets put, listed, deleted and rotated by those whom policy lets. Values go in; one way is out."""

import asyncio
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from palyra.api.http import WrongShape, answer, read_into
from palyra.api.service import ApiService
from palyra.clock import rfc3339
from palyra.secret import Secret
from palyra.vault.errors import NotConfirmed
from palyra.vault.limits import MAX_LISTED
from palyra.vault.record import SecretInfo, UseNote
from palyra.vault.ref import SecretRef, SecretScope


class SecretBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    value: str


class RevealBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    ref: str
    confirm: str
    version: int | None = None


class RotateBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    to: Literal["file", "keyring", "passphrase", "environment"] | None = None


async def put_secret(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    ref = SecretRef.parse(request.path_params["ref"])
    service.require_vault_manager(caller, ref)
    value = Secret((await read_into(request, SecretBody)).value)
    info = await service.vault.put(ref, value, actor=caller.actor)
    return answer(secret_view(info), 201)


async def list_secrets(service: ApiService, request: Request) -> Response:
    service.require_vault_manager(service.caller(request))
    scope, after = request.query_params.get("scope"), request.query_params.get("after")
    found = await asyncio.to_thread(
        service.vault.list,
        None if scope is None else SecretScope.parse(scope),
        after=None if after is None else SecretRef.parse(after),
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


async def delete_secret(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    ref = SecretRef.parse(request.path_params["ref"])
    service.require_vault_manager(caller, ref)
    return answer(secret_view(await service.vault.delete(ref, actor=caller.actor)))


async def rotate_vault(service: ApiService, request: Request) -> Response:
    caller = service.caller(request)
    service.require_vault_manager(caller)
    body = await read_into(request, RotateBody)
    return answer(msgspec.to_builtins(await service.vault.rotate(body.to, actor=caller.actor)))


async def reveal_secret(service: ApiService, request: Request) -> Response:
    """``confirm`` is the name as the person typed it. That a person typed it is the word of whoever holds the token."""
    caller = service.caller(request)
    body = await read_into(request, RevealBody)
    ref = SecretRef.parse(body.ref)
    policies = service.require_vault_reader(caller, ref)
    if body.confirm != str(ref):
        raise NotConfirmed(f"the name typed is not {ref}")
    if body.version is not None and body.version < 1:
        raise WrongShape("versions are counted from 1")
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


def secret_view(info: SecretInfo) -> dict[str, Any]:
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
