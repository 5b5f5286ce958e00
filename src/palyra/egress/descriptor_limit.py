"""Descriptors for thousands of tunnels: a process starts with far fewer than it may have."""

import resource
from contextlib import suppress

from palyra.egress.proxy_limits import SPARE_DESCRIPTORS, WANTED_DESCRIPTORS

DESCRIPTORS_PER_TUNNEL = 2


def raise_descriptor_limit(wanted: int = WANTED_DESCRIPTORS) -> int:
    """Raises this process's limit as far as it may; gives the limit that is then in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    with suppress(ValueError, OSError):
        # Beyond the hard limit only a privileged process may go.
        ceiling = hard if hard == resource.RLIM_INFINITY else max(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, ceiling))
        return wanted
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def tunnels_within(descriptors: int) -> int:
    """How many tunnels fit beside everything else."""
    return max(1, (descriptors - SPARE_DESCRIPTORS) // DESCRIPTORS_PER_TUNNEL)
