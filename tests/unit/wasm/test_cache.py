import os

import pytest

from palyra.wasm.compiled_modules import CacheFolder, CompiledCache, Stored, fill_memory_file, seal
from palyra.wasm.domain.module_facts import ModuleFacts

FACTS = ModuleFacts(form="core", size=3)


def _stored(content: bytes) -> Stored:
    descriptor = fill_memory_file(content)
    seal(descriptor)
    return Stored(descriptor, len(content), FACTS)


@pytest.fixture
def made(tmp_path):
    refused: list[tuple[str, str]] = []
    folder = CacheFolder(tmp_path / "c", most_bytes=10_000)
    cache = CompiledCache(folder, b"key", memory_bytes=250, on_refused=lambda *why: refused.append(why))
    yield cache, refused
    cache.close()
    assert refused == []


def test_what_was_written_is_read_again(made):
    cache, _ = made
    stored = _stored(b"compiled")
    cache.write(b"digest", "engine", stored)
    stored.close()
    again = cache.read(b"digest", "engine")
    assert os.pread(again.descriptor, 100, 0) == b"compiled"
    assert again.facts == FACTS
    again.close()
    assert cache.read(b"digest", "another engine") is None
    assert cache.read(b"another digest", "engine") is None


def test_what_is_handed_out_cannot_be_changed(made):
    cache, _ = made
    stored = _stored(b"compiled")
    cache.write(b"digest", "engine", stored)
    stored.close()
    again = cache.read(b"digest", "engine")
    with pytest.raises(PermissionError):
        os.pwrite(again.descriptor, b"evil", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(again.descriptor, 1)
    again.close()


def test_memory_keeps_what_was_used_last(made):
    cache, _ = made
    for name in (b"a", b"b"):
        cache.keep(name, "e", _stored(bytes(100)))
    assert cache.in_memory(b"a", "e") is not None
    cache.keep(b"c", "e", _stored(bytes(100)))
    assert cache.in_memory(b"b", "e") is None
    assert cache.in_memory(b"a", "e") is not None
    cache.keep(b"huge", "e", _stored(bytes(1_000)))
    assert cache.in_memory(b"huge", "e") is not None
    assert cache.in_memory(b"a", "e") is None


def test_a_directory_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").touch()
    folder = CacheFolder(tmp_path / "file" / "below", most_bytes=10_000)
    cache = CompiledCache(folder, b"key", memory_bytes=10, on_refused=lambda *_: None)
    stored = _stored(b"compiled")
    cache.write(b"digest", "engine", stored)
    stored.close()


def test_files_are_the_owners_alone(made, tmp_path):
    cache, _ = made
    stored = _stored(b"compiled")
    cache.write(b"digest", "engine", stored)
    stored.close()
    path = cache.path(b"digest", "engine")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_file_that_was_read_counts_as_used(made):
    cache, _ = made
    for name in (b"read", b"not read", b"in memory"):
        stored = _stored(bytes(4_000))
        cache.write(name, "engine", stored)
        stored.close()
        os.utime(cache.path(name, "engine"), (1, 1))
    cache.read(b"read", "engine").close()
    cache.keep(b"in memory", "engine", _stored(b"compiled"))
    assert cache.make_room(cache.kept_files()).files == 1
    assert not cache.path(b"not read", "engine").exists()
    assert cache.path(b"read", "engine").exists()
    assert cache.path(b"in memory", "engine").exists()
