"""The CDC page: looks at state stores and notes wishes. It asks no source and no sink."""
