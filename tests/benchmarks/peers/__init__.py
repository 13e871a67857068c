"""The systems measured beside ours, each used the way its users do."""
