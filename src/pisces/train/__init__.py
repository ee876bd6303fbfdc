"""Trainers turn tasks into results: weights in, weights and a report out."""
