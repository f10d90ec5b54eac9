"""What is done to a stream, one file a stage. Knows only the pipeline."""
