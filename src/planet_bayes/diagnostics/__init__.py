"""Diagnostics of a trained run: what its model foresees, and what other settings would do."""
