"""Modules and parts that are made at the start and stay: Python does not look through them for what nobody needs.

It would, again and again while they are made, which takes a sixth of a start, and ever after.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def made_to_stay() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
