"""Pictures as files, drawn by matplotlib: by name, on paper of any width, with their numbers."""
