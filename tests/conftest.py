"""Generated examples are the same in every ordinary run, so that a red run is about the change in hand.

`PALYRA_RANDOM_EXAMPLES=1` draws new ones; `make soak` does.
"""

import os

from hypothesis import settings

settings.register_profile("same", derandomize=True)
settings.register_profile("random", max_examples=500)
settings.load_profile("random" if os.environ.get("PALYRA_RANDOM_EXAMPLES") == "1" else "same")
