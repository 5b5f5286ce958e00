"""The device's side: what runs on a paired machine and does what the daemon asks of it."""
