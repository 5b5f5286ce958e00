from pathlib import Path

from fakes.wasm_guests import minimal
from palyra.config.state_dir import StateDir
from palyra.executors.wasm.executor import CACHE_KEY, make_runtime
from palyra.wasm.domain.limits import RuntimeLimits
from palyra.wasm.settings import WasmSettings


async def test_compiled_modules_outlive_the_runtime_by_a_key_of_the_state_directory(tmp_path: Path) -> None:
    state = StateDir.open(tmp_path / "state")
    for _ in range(2):
        runtime = make_runtime(WasmSettings(workers=1), state, RuntimeLimits())
        try:
            compiled = await runtime.compile(minimal("(i32.const 3)"))
            assert (await runtime.run(compiled)).output == 3
            assert runtime.refused_cache_files == 0
        finally:
            await runtime.close()
    assert state.path(CACHE_KEY).stat().st_mode & 0o777 == 0o600
    state.write_atomic(CACHE_KEY, b"another key")
    runtime = make_runtime(WasmSettings(workers=1), state, RuntimeLimits())
    try:
        await runtime.compile(minimal("(i32.const 3)"))
        assert runtime.refused_cache_files == 1
    finally:
        await runtime.close()
