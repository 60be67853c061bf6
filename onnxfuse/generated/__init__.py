"""Generated fusion: operators made for one place of one model, where no rule has a name for what stands there.

`program` is what such an operator computes, `body` the same in standard ONNX; `regions` finds places, `sizes` those that
compute shapes, `writer` makes their programs, `candidates` offers them to the engine like what rules find.
"""
