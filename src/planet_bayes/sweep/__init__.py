"""Sweeps: the runs of a declared experiment, side by side on one machine or on a cluster."""
