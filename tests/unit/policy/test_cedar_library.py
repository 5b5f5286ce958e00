import subprocess
import sys

TREE = """
import sys
from palyra.policy.cedar_library import cedarpy
import palyra.policy.cedar
loaded = [name for name in vars(sys.modules["cedarpy.pst"]) if not name.startswith("__")]
policies = cedarpy.policies_to_pst("permit (principal, action, resource);")
print(loaded, type(policies).__module__, type(policies).__name__, cedarpy.pst.PolicySet is type(policies))
"""


def test_the_tree_of_a_policy_is_there_for_whoever_looks_and_is_not_loaded_for_others() -> None:
    ended = subprocess.run([sys.executable, "-c", TREE], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[] cedarpy.pst PolicySet True"
