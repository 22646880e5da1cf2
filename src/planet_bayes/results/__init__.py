"""Results: curves and settings of finished runs, their tables and figures.

Tables and figures need the files under ``results/`` and no PyTorch. A comparison with today's
presets, and the collection of runs, import the rest of the package when they are called.
"""
