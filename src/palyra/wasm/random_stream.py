"""The random bytes a guest sees: decided by its grant's seed, the same in every run with the same seed."""

import hashlib


class RandomStream:
    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._block = 0

    def take(self, length: int) -> bytes:
        """Each reading is a stream of its own, named by the seed and how many readings there were before."""
        self._block += 1
        named = b"palyra wasm random v1\0" + self._block.to_bytes(8, "little") + self._seed
        return hashlib.shake_256(named).digest(length)
