"""When do we aggregate? One pacer per file."""
