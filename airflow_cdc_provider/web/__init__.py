"""The CDC page: looks at state stores and notes wishes.

It asks no source and no sink, but for the form of a new pipeline: `hooks.new_pipeline` does.
"""
