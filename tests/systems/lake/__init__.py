"""Tables in a lake, in folders of their own."""
