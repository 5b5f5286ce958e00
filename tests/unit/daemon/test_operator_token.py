"""The owner's token: one, private, and replaced only when it no longer works."""

import asyncio
from pathlib import Path

import msgspec

from fakes.gateway_harness import open_harness
from palyra.daemon.operator_token import FILE, operator_token
from palyra.daemon.settings import Settings
from palyra.identity.api_tokens import TokenScope, authenticate, list_tokens, revoke_token
from palyra.ids import TokenId


async def test_it_is_made_once_and_kept_in_a_file_of_ones_own(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        gateway = harness.gateway

        first = await asyncio.to_thread(operator_token, gateway.store, gateway.state, gateway.settings)
        again = await asyncio.to_thread(operator_token, gateway.store, gateway.state, gateway.settings)
        assert first == again and len(list_tokens(gateway.store)) == 1
        path = gateway.state.path(FILE)
        assert path.read_text() == first.reveal() + "\n" and path.stat().st_mode & 0o777 == 0o600
        record = authenticate(gateway.store, first.reveal(), gateway.clock.now_ms())
        assert record.principal == "user:operator" and set(record.scopes) == set(TokenScope)


async def test_a_revoked_or_damaged_one_is_replaced_and_the_old_one_stays_dead(tmp_path: Path) -> None:

    async with open_harness(tmp_path) as harness:
        gateway = harness.gateway
        first = await asyncio.to_thread(operator_token, gateway.store, gateway.state, gateway.settings)
        token_id = TokenId(list_tokens(gateway.store)[0].token_id)
        await gateway.store.transact(lambda tx: revoke_token(tx, token_id, actor="test"))
        second = await asyncio.to_thread(operator_token, gateway.store, gateway.state, gateway.settings)
        assert second != first
        gateway.state.path(FILE).write_text("plr_nonsense\n")
        third = await asyncio.to_thread(operator_token, gateway.store, gateway.state, gateway.settings)
        assert third not in (first, second)
        assert authenticate(gateway.store, third.reveal(), gateway.clock.now_ms()).principal == "user:operator"


async def test_it_belongs_to_the_first_operator_of_the_settings(tmp_path: Path) -> None:

    async with open_harness(tmp_path) as harness:
        gateway = harness.gateway
        settings = msgspec.convert({"access": {"operators": ["user:alice", "user:bob"]}}, Settings)
        token = await asyncio.to_thread(operator_token, gateway.store, gateway.state, settings)
        assert authenticate(gateway.store, token.reveal(), gateway.clock.now_ms()).principal == "user:alice"


async def test_the_token_is_not_in_the_journal(tmp_path: Path) -> None:

    async with open_harness(tmp_path) as harness:
        gateway = harness.gateway
        token = await asyncio.to_thread(operator_token, gateway.store, gateway.state, gateway.settings)
        assert harness.kinds(kind="credential.created") == ["credential.created"]
        assert token.reveal()[31:] not in str(harness.events())
