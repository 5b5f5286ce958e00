"""Tier A: WebAssembly guests in confined worker processes, with capabilities they were granted and no others."""
