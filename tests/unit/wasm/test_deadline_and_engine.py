import os
import subprocess
import sys
import time
from importlib.metadata import version
from types import SimpleNamespace

import pytest
import wasmtime

from palyra.wasm import engine as engine_module
from palyra.wasm import libwasmtime
from palyra.wasm.deadline import Deadline
from palyra.wasm.engine import SETTINGS, SLOT, engine_name, fits_into_slot, make_engine, make_slot_engine
from palyra.wasm.module_facts import module_facts


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
from palyra.wasm.engine import engine_name, make_engine
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


@pytest.mark.parametrize(
    ("body", "fits"),
    [
        ('(memory (export "memory") 1)', True),
        ('(memory (export "memory") 1) (table 10 10 funcref)', True),
        ("(memory 1)", False),
        ("", False),
        ('(memory (export "memory") 1) (memory 1)', False),
        ('(memory (export "memory") 1) (table 10 funcref)', False),
        (f'(memory (export "memory") 1) (table 10 {SLOT["table_elements"] + 1} funcref)', False),
        ('(memory (export "memory") 1) (table 1 1 funcref) (table 1 1 funcref)', False),
    ],
)
def test_a_module_fits_into_a_slot_that_it_cannot_outgrow(body, fits):
    module = bytes(wasmtime.wat2wasm(f"(module {body})"))
    assert fits_into_slot(module_facts(module)) is fits
    slot = make_slot_engine()
    assert slot is not None
    if fits:
        wasmtime.Module.deserialize(slot, bytes(wasmtime.Module(make_engine(), module).serialize()))


def test_an_engine_with_a_slot_needs_address_space():
    program = """
import resource
from palyra.wasm.engine import make_slot_engine
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
print(make_slot_engine())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.stdout == b"None\n", done.stderr
