"""Clients that are nodes of a Flower federation."""
