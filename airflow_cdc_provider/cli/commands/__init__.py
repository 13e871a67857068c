"""The commands: each opens the pipeline, calls its step and shows what came of it.

A module holds the commands that need the same libraries, and is imported when one of them runs.
"""
