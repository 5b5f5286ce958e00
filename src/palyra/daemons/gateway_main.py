"""``palyrad``: the daemon as a service manager starts it. People use ``palyra up``."""

import logging
import sys

import click

from palyra.cli.invocation import Invocation
from palyra.cli.main import run_as_program
