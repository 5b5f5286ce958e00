import json
import subprocess
import sys

# In a process of its own: a limit once lowered stays.
PROGRAM = """
import json, resource
from palyra.egress.proxy.server import raise_descriptor_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 1000))
first = raise_descriptor_limit(900)
print(json.dumps([first, raise_descriptor_limit(500), resource.getrlimit(resource.RLIMIT_NOFILE)[0]]))
"""


def test_the_limit_is_raised_as_far_as_asked_and_never_lowered() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True, timeout=60)
    assert json.loads(done.stdout) == [900, 900, 900]
