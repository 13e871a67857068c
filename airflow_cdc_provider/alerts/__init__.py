"""Notifies people and programs of problems of a pipeline, and when they are over."""
