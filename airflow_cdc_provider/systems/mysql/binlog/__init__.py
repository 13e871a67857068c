"""The binary log, decoded across events into columns."""
