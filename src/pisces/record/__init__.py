"""What a run leaves behind: one folder with its config, events, summary and model."""
