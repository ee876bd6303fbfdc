"""Executors carry tasks to clients and bring back what happened. Only they own time."""
