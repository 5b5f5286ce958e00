import os
import subprocess
import sys
import time
from importlib.metadata import version
from types import SimpleNamespace

import pytest
import wasmtime

from palyra.wasm.engine import config as engine_module
from palyra.wasm.engine import libwasmtime
from palyra.wasm.engine.config import SETTINGS, engine_name, make_engine
from palyra.wasm.engine.metering import Deadline


def test_the_timer_ends_a_guest_and_says_that_it_went_off():
    engine = make_engine()
    deadline = Deadline(libwasmtime.address_of(engine))
    module = wasmtime.Module(engine, '(module (func (export "run") (loop $l (br $l))))')
    store = wasmtime.Store(engine)
    store.set_fuel(10**15)
    store.set_epoch_deadline(1)
    run = wasmtime.Instance(store, module, []).exports(store)["run"]
    deadline.arm(20_000)
    try:
        run(store)
    except wasmtime.Trap as trap:
        assert trap.trap_code is wasmtime.TrapCode.INTERRUPT
    else:
        raise AssertionError("the guest was not ended")
    assert deadline.disarm()


def test_a_timer_that_was_stopped_did_not_go_off():
    engine = make_engine()
    deadline = Deadline(libwasmtime.address_of(engine))
    deadline.arm(60_000_000)
    assert not deadline.disarm()
    deadline.arm(0)
    time.sleep(0.05)
    assert deadline.disarm()


def test_the_engines_name_tells_everything_a_compiled_module_depends_on():
    name = engine_name()
    assert all(setting in name for setting in SETTINGS)
    assert name.startswith(f"wasmtime {version('wasmtime')} ")


@pytest.mark.parametrize("beside", [[], ["wasmtime-1.0.dist-info", "wasmtime-2.0.dist-info"]])
def test_where_the_folders_do_not_tell_the_version_python_is_asked(beside, monkeypatch):
    monkeypatch.setattr(engine_module, "os", SimpleNamespace(path=os.path, listdir=lambda _folder: beside))
    assert engine_name().startswith(f"wasmtime {version('wasmtime')} ")


def test_a_limited_address_space_gets_small_reservations_and_another_name():
    """Set in a process of its own, since a limit cannot be raised again."""
    program = """
import resource, wasmtime
from palyra.wasm.engine.config import engine_name, make_engine
before = engine_name()
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
engine = make_engine()
store = wasmtime.Store(engine)
store.set_fuel(1000)
store.set_epoch_deadline(1)
wasmtime.Instance(store, wasmtime.Module(engine, "(module (memory 1))"), [])
print(before != engine_name())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.stdout == b"True\n", done.stderr
