"""What each command of the command line does; `onnxfuse.cli` reads the options and calls `run` here."""
