"""The WebAssembly runtime as the settings want it."""

import secrets
from typing import Final

from palyra.config.settings import WasmSettings
from palyra.config.state_dir import StateDir
from palyra.secret import Secret
from palyra.wasm.limits import PoolSettings, RuntimeLimits
from palyra.wasm.runtime import WasmRuntime

CACHE: Final = "wasm/compiled"
# Authenticates compiled modules on disk: native code that anybody else wrote there is not loaded.
CACHE_KEY: Final = "wasm/cache.key"
_KEY_BYTES: Final = 32


def make_runtime(settings: WasmSettings, state: StateDir, limits: RuntimeLimits) -> WasmRuntime:
    """No process is started before the runtime is first used."""
    return WasmRuntime(
        cache_directory=state.path(CACHE),
        key=_cache_key(state),
        limits=limits,
        pool=PoolSettings(ready=settings.workers),
    )


def _cache_key(state: StateDir) -> Secret:
    path = state.path(CACHE_KEY)
    try:
        key = path.read_text("ascii")
    except FileNotFoundError:
        key = secrets.token_hex(_KEY_BYTES)
        state.write_atomic(CACHE_KEY, key.encode())
    return Secret(key)
