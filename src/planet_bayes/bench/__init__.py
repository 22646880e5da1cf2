"""Measurements: the cost of planning, learning, sampling and simulating."""

from planet_bayes.bench.measure import bench
from planet_bayes.bench.report import Cost, Report, tables

__all__ = ["Cost", "Report", "bench", "tables"]
