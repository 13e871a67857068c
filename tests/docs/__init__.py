"""What the pages say is what the code does."""
