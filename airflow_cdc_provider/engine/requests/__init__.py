"""What a person or a schedule asks of a living pipeline, carried out beside its stream."""
