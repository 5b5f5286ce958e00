"""Generated examples are the same in every ordinary run, so that a red run is about the change in hand.

`PALYRA_RANDOM_EXAMPLES=1` draws new ones; `make soak` does.
"""

import os

from hypothesis import settings

# How long an example takes says how busy the machine is.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("random", max_examples=500, deadline=None)
settings.load_profile("random" if os.environ.get("PALYRA_RANDOM_EXAMPLES") == "1" else "same")
