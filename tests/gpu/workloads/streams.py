"""Memory that PyTorch's allocator gives out again while another stream, or a captured graph, still uses it: one case a run.

no_record_stream: a tensor dies whose memory another stream still reads. record_stream: PyTorch is told of that stream.
waited: the first stream waits for the other. workspace: a graph was captured with a tensor that dies before a replay.
kept: the tensor stays.
"""
from common import arguments, deterministic, finish, need_gpu, need_triton

COUNT = 1 << 20


def used_elsewhere(torch, case):
    """By copies, whose addresses are plain to see: those of element-wise kernels are inside structs, and not judged."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        there = torch.zeros(COUNT, device="cuda")
    x, source = torch.ones(COUNT, device="cuda"), torch.full((COUNT,), 3.0, device="cuda")
    torch.cuda.synchronize()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        there.copy_(x)
    if case == "record_stream":
        x.record_stream(side)
    if case == "waited":
        torch.cuda.current_stream().wait_stream(side)
    before = x.data_ptr()
    del x
    other = torch.empty(COUNT, device="cuda")
    other.copy_(source)
    torch.cuda.synchronize()
    return float(there.sum() if case != "no_record_stream" else 0), other.data_ptr() == before


def graph(torch, case):
    need_triton("cuda")
    from triton_op import scaled_relu_kernel

    def step():  # a kernel that takes addresses as parameters of their own
        scaled_relu_kernel[(COUNT // 1024,)](workspace, out, 1.5, COUNT, BLOCK=1024)

    workspace, out = torch.ones(COUNT, device="cuda"), torch.zeros(COUNT, device="cuda")
    step()
    torch.cuda.synchronize()
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        step()
    recorded.replay()
    if case == "workspace":
        del workspace
    recorded.replay()
    torch.cuda.synchronize()
    return float(out.sum()), False


CASES = {"no_record_stream": used_elsewhere, "record_stream": used_elsewhere, "waited": used_elsewhere,
         "workspace": graph, "kept": graph}


def main():
    args = arguments(__doc__, case=sorted(CASES))
    need_gpu(args.device)
    result, reused = CASES[args.case](deterministic(), args.case)
    finish(args.out, result=result, reused=reused)


if __name__ == "__main__":
    main()
