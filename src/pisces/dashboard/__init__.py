"""The live page: run folders in a browser. It reads them, and never touches the runs."""
