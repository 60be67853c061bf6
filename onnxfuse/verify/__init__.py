"""Nothing is fused on trust: whole models and single rewrites are compared with what they were."""

from onnxfuse.verify.compare import Difference, compare
from onnxfuse.verify.fingerprint import Verdicts, fingerprint
from onnxfuse.verify.models import Verification, verify
from onnxfuse.verify.rewrites import verify_rewrite

__all__ = ["Difference", "Verdicts", "Verification", "compare", "fingerprint", "verify", "verify_rewrite"]
