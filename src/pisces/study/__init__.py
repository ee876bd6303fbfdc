"""Studies: protocols or settings compared over seeds, and what comes of a paper's claims."""
