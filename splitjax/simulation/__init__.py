"""Rounds from arrays, without a config; a sandbox; the contract of methods."""

from splitjax.simulation.loop import Simulation, fleet_of, simulate

__all__ = ["Simulation", "fleet_of", "simulate"]
