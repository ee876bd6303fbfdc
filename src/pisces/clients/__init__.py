"""What the server knows of its clients: a table of columns, its manager, and a read-only view."""
