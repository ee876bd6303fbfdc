"""The side that has the model: an executor whose clients connect to it."""
