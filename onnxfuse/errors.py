"""What can go wrong for the caller: each error says who, where, what must hold, what came, and what to do next."""


class OnnxFuseError(Exception):
    """Base of all errors meant for the caller. `exit_code` is what the command line returns for it."""

    exit_code = 1


class UsageError(OnnxFuseError):
    """The call itself is wrong: an unknown rule, device, level, or two options that exclude each other."""

    exit_code = 2


class ModelError(OnnxFuseError):
    """The file is no valid ONNX model, or a part of it (external data, a node) is missing or broken."""


class ShapeError(OnnxFuseError):
    """A shape does not satisfy the contract of an op or of a request."""


class RuleError(OnnxFuseError):
    """A rule file cannot be loaded, or a rule in it is not well formed."""


class VerificationError(OnnxFuseError):
    """Two models, or a rewrite and what it replaced, do not give the same numbers."""


class RuntimeMissingError(OnnxFuseError):
    """No ONNX Runtime is installed, or it cannot load the model or the custom-op library."""


class KernelError(OnnxFuseError):
    """A GPU kernel cannot be built, or its file is not what it should be."""
