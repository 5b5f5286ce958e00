import hashlib
import os
import time
from pathlib import Path

import pytest

from palyra.errors import PalyraError
from palyra.fleet.limits import CHUNK_BYTES, KEPT_ARTIFACT_SECONDS
from palyra.fleet.store.artifacts import ArtifactDiffers, ArtifactsFull, ArtifactStore, ArtifactUnknown

DIGEST = hashlib.sha256(b"content").hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "artifacts", max_bytes=CHUNK_BYTES * 2)


def put(store: ArtifactStore, content: bytes = b"content") -> str:
    digest = hashlib.sha256(content).hexdigest()
    store.add(iter((content,)), len(content), digest)
    return digest


def test_what_is_added_is_there_once_under_its_digest(store: ArtifactStore, tmp_path: Path) -> None:
    assert store.missing([DIGEST, DIGEST]) == [DIGEST]
    assert put(store) == put(store) == DIGEST
    assert store.has(DIGEST) and store.content(DIGEST) == b"content" and store.missing([DIGEST]) == []
    assert store.read(DIGEST, 3) == b"tent" and store.read(DIGEST, 7) == b""
    assert [path.name for path in (tmp_path / "artifacts").iterdir()] == [DIGEST]
    assert (tmp_path / "artifacts" / DIGEST).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("content", "size"), [(b"other", 5), (b"content", 6), (b"content", 8)])
def test_what_is_not_what_it_says_leaves_nothing(
    store: ArtifactStore, tmp_path: Path, content: bytes, size: int
) -> None:
    with pytest.raises(ArtifactDiffers):
        store.add(iter((content,)), size, DIGEST)
    assert list((tmp_path / "artifacts").iterdir()) == []


@pytest.mark.parametrize("name", ["../x", "", "A" * 64, "a" * 63, "a" * 64 + "\n"])
def test_a_digest_is_a_digest(store: ArtifactStore, name: str) -> None:
    with pytest.raises(ArtifactUnknown):
        store.has(name)


def test_the_store_has_an_end_and_what_is_not_there_is_told(store: ArtifactStore) -> None:
    put(store, b"a" * CHUNK_BYTES)
    with pytest.raises(ArtifactsFull):
        store.receive(DIGEST, CHUNK_BYTES + 1)
    with pytest.raises(PalyraError):
        store.receive(DIGEST, -1)
    with pytest.raises(ArtifactUnknown):
        store.read(DIGEST)


def test_what_did_not_stay_does_not_count_and_the_folder_is_not_looked_through_each_time(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0
    count = ArtifactStore.stored_bytes

    def counted(self: ArtifactStore) -> int:
        nonlocal looked
        looked += 1
        return count(self)

    monkeypatch.setattr(ArtifactStore, "stored_bytes", counted)
    for _ in range(5):
        with pytest.raises(ArtifactDiffers):
            store.add(iter((b"other",)), CHUNK_BYTES, "00" * 32)
        # The same file on two ways at once takes its place once.
        first, second = store.receive(DIGEST, 7), store.receive(DIGEST, 7)
        for incoming in (first, second):
            incoming.write(b"content")
            incoming.finish()
            incoming.close()
    put(store, b"a" * (2 * CHUNK_BYTES - 7))
    with pytest.raises(ArtifactsFull):
        store.receive(hashlib.sha256(b"b").hexdigest(), 1)
    assert looked == 1
    # Gone in another way, which the next round sees.
    (tmp_path / "artifacts" / DIGEST).unlink()
    store.prune(())
    put(store)


def test_what_nobody_needs_goes_after_a_while(store: ArtifactStore, tmp_path: Path) -> None:
    kept, fresh, old = put(store, b"kept"), put(store, b"fresh"), put(store, b"old")
    long_ago = time.time() - KEPT_ARTIFACT_SECONDS - 1
    for digest in (kept, old):
        os.utime(tmp_path / "artifacts" / digest, (long_ago, long_ago))
    assert store.prune({kept}) == 1
    assert store.missing([kept, fresh, old]) == [old]
