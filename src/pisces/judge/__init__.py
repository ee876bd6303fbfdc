"""Whom to trust? One judge per file."""
