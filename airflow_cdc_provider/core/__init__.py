"""The rules of change data capture: values and decisions, no I/O, standard library only."""
