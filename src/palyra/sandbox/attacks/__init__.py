"""Escape attempts that are made inside the real sandbox, and the judgement of what came of them."""
