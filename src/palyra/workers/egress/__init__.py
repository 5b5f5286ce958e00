"""The worker's egress proxy, a process of its own, and what worker and daemon say to it."""
