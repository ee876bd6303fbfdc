"""Pisces: asynchronous federated learning that does not wait for stragglers."""

__version__ = "0.1.0"
