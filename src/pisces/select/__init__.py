"""Who trains next? One selector per file, named after its paper."""
