"""Processes run with limits (Tier B) or in isolation (Tier C), and the receipt of what really held."""
