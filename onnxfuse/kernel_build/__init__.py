"""From a kernel written in Triton to machine code and what is known of it, with no GPU: compile, read, look over, in that order.

`worker` compiles one kernel in a process of its own and is the only module that needs Triton; `build` starts as many as wanted and
keeps what has not changed; `cubin` and `sass` read machine code; `gate` says whether it is good enough.
"""
