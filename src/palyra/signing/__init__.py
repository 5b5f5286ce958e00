"""Signatures over named bytes: DSSE envelopes and Ed25519 keys."""
