"""A Flower app that learns scikit-learn's handwritten digits."""
