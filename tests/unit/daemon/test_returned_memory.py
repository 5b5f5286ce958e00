import subprocess
import sys

from palyra.limits import MIB

# Eight threads stretch a code each, as a daemon's would over the days.
STRETCHING = """
import sys, threading
from palyra.daemon.process_setup import return_large_blocks
from palyra.devicelink.pairing.code import stretch
from palyra.secret import Secret

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

if sys.argv[1] == "returned":
    return_large_blocks()
together, done = threading.Barrier(8), threading.Barrier(9)

def work():
    for _ in range(3):
        together.wait()
        stretch(Secret("12345678"), b"s" * 16)
    done.wait()
    done.wait()

before = resident()
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
done.wait()
print(resident() - before)
done.wait()
"""


def kept_after(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", STRETCHING, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_what_a_pairing_code_took_is_given_back() -> None:
    assert kept_after("returned") < 16 * MIB
