"""What a daemon offers is read strictly: whatever could mean something else here is refused."""

import hashlib
from typing import Any

import msgspec
import pytest

from fakes.lease_offers import OFFER
from palyra.fleet import limits
from palyra.fleet.agent.lease import BadOffer, read_arguments, read_obligations, require_sound
from palyra.fleet.domain.workspace_scope import ArtifactRef, WorkerWorkspaceScope
from palyra.policy.decision import Obligations


def test_a_sound_offer_passes() -> None:
    require_sound(OFFER)
    require_sound(msgspec.structs.replace(OFFER, tier="c"))


@pytest.mark.parametrize(
    "changes",
    [
        {"lease_id": "../../etc"},
        {"lease_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV/x"},
        {"nonce": "x"},
        {"nonce": "0" * 63 + "\n"},
        {"timeout_ms": 0},
        {"max_output_bytes": -1},
        {"fence": -1},
        {"tier": "d"},
        {"scope": WorkerWorkspaceScope(root="work")},
        {"scope": WorkerWorkspaceScope(root="/srv/../etc")},
        {"scope": WorkerWorkspaceScope(root="/srv/work", allowed_paths=("../x",))},
        {"scope": WorkerWorkspaceScope(root="/srv/work", allowed_paths=("src/", "a"))},
        {"inputs": (ArtifactRef(path="../x", digest_sha256="0" * 64, size=1),)},
        {"inputs": (ArtifactRef(path="other/x", digest_sha256="0" * 64, size=1),)},
        {"inputs": (ArtifactRef(path="src/x", digest_sha256="0" * 63, size=1),)},
        {"inputs": (ArtifactRef(path="src/x", digest_sha256="0" * 64, size=1 << 40),)},
        {
            "inputs": (
                ArtifactRef(path="src/x", digest_sha256="0" * 64, size=1),
                ArtifactRef(path="src/x/y", digest_sha256="0" * 64, size=1),
            )
        },
    ],
)
def test_what_no_honest_daemon_sends_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(BadOffer):
        require_sound(msgspec.structs.replace(OFFER, **changes))


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def test_arguments_are_those_of_the_digest() -> None:
    raw = b'{"text":"hi"}'
    assert read_arguments(raw, _digest(raw)) == {"text": "hi"}
    for bad in (raw + b" ", b'{"text":"ho"}'):
        with pytest.raises(BadOffer):
            read_arguments(bad, _digest(raw))


@pytest.mark.parametrize("raw", [b"[]", b'"x"', b'{"a":1,"a":2}', b"{", b"", b"\xff"])
def test_arguments_that_are_no_strict_object_are_refused(raw: bytes) -> None:
    with pytest.raises(BadOffer):
        read_arguments(raw, _digest(raw))


def test_arguments_are_bounded() -> None:
    raw = b'{"text":"' + b"a" * limits.MAX_ARGUMENT_BYTES + b'"}'
    with pytest.raises(BadOffer):
        read_arguments(raw, _digest(raw))


def test_obligations_are_read_and_one_that_is_not_known_is_refused() -> None:
    assert read_obligations(b"") == Obligations()
    assert read_obligations(b'{"timeout_ms":5,"read_only":true,"tier":"c"}').timeout_ms == 5
    for raw in (b'{"gpu":true}', b'{"timeout_ms":0}', b'{"tier":"z"}', b'{"egress":"all"}', b"[]", b"{", b"x" * 20_000):
        with pytest.raises(BadOffer):
            read_obligations(raw)
