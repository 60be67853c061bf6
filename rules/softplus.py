"""where(x > 20, x, softplus(x)) -> Softplus(x): what PyTorch says about large x is what ONNX Runtime does anyway."""

from onnxfuse.pattern import Var, op, target
from onnxfuse.rule import Match, Rule

x = Var("x")


def bounded(match: Match) -> str | None:
    producer = match.root.producer
    return None if producer is not None and producer.op == "Where" else "log(1 + exp(x)) must stay: it overflows where softplus does not"


RULE = Rule(
    before=op.Softplus(x),
    after=target("").Softplus(x),
    where=[bounded],
    fires_on=[
        """g (float[2,8] x) => (float[2,8] y) {
            far = Constant<value = float {20.0}>()  s = Softplus(x)  above = Greater(x, far)  y = Where(above, x, s)
        }""",
    ],
    declines={
        "log(1 + exp(x)) must stay": """g (float[2,8] x) => (float[2,8] y) <float one = {1}> {
            e = Exp(x)  p = Add(one, e)  y = Log(p)
        }""",
        "must be read by nobody else": """g (float[2,8] x) => (float[2,8] y, float[2,8] s) {
            far = Constant<value = float {20.0}>()  s = Softplus(x)  above = Greater(x, far)  y = Where(above, x, s)
        }""",
    },
)
