"""``make soak``: a whole Palyra under mixed load while everything around it fails."""
