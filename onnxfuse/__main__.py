"""`python -m onnxfuse`: the command line."""

from onnxfuse.cli import main

main()
