"""How are updates combined? One aggregator per file."""
