"""The append-only record: events, their hash chain, signed checkpoints, and the store that keeps them."""
