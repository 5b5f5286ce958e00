"""Started inside the sandbox as ``python3 -I -S …/probes/start.py``; the order comes as JSON on standard input."""

import importlib
import os
import sys

if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, os.path.dirname(here))
    importlib.import_module(os.path.basename(here) + ".program").main()
