"""Generated examples are the same in every ordinary run, so that a red run is about the change in hand.

`PALYRA_RANDOM_EXAMPLES=1` draws new ones; `make soak` does.
"""

import os

from hypothesis import HealthCheck, settings

# How fast a machine makes examples says nothing about the code: others may be using it.
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("random", settings.get_profile("same"), derandomize=False, max_examples=500)
settings.load_profile("random" if os.environ.get("PALYRA_RANDOM_EXAMPLES") == "1" else "same")
