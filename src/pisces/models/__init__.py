"""Models, and their way into one flat vector and back."""
