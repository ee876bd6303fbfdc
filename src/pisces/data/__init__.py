"""Datasets, how they are split over clients, and how some of them are spoilt."""
