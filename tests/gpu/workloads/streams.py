"""Memory that PyTorch's allocator gives out again while another stream, or a captured graph, still uses it: one case a run.

no_record_stream: a tensor dies whose memory another stream still reads. record_stream: PyTorch is told of that stream.
waited: the first stream waits for the other. workspace: a graph was captured with a tensor that dies before a replay.
kept: the tensor stays. side_stream: modules run in another stream, their memory goes back to the device between steps.
pinned: modules return memory of the host to which a copy is under way.
"""
import os

from common import arguments, deterministic, digest, finish, need_gpu, need_triton

COUNT = 1 << 20


def used_elsewhere(torch, case):
    """Uses a tensor on another stream by copies, whose addresses are visible; element-wise kernels have theirs in structs, which
    are not judged."""
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


def side_stream(torch, _):
    layers = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(8))).cuda()
    side, out = torch.cuda.Stream(), []
    x = torch.ones(1024, 1024, device="cuda")
    for _ in range(20):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = layers(x)
            out.append(y.sum().detach())
        y.record_stream(torch.cuda.current_stream())
        del y
        torch.cuda.empty_cache()  # waits for the segment's own streams alone, and unmaps
    torch.cuda.synchronize()
    return digest(out), False


def pinned(torch, _):
    class Offload(torch.nn.Module):
        def forward(self, x):
            there = torch.empty(x.shape, pin_memory=True)
            return there.copy_(x, non_blocking=True)

    offload, kept = Offload(), []
    for i in range(20):
        x = torch.full((COUNT,), float(i + 1), device="cuda")
        torch.cuda._sleep(50_000_000)  # the copy is behind it
        kept.append(offload(x))
    torch.cuda.synchronize()
    return [float(one.double().sum()) for one in kept], False


CASES = {"side_stream": side_stream, "pinned": pinned, "no_record_stream": used_elsewhere,
         "record_stream": used_elsewhere, "waited": used_elsewhere, "workspace": graph, "kept": graph}


def main():
    args = arguments(__doc__, case=sorted(CASES))
    need_gpu(args.device)
    if args.case == "side_stream":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    result, reused = CASES[args.case](deterministic(), args.case)
    finish(args.out, result=result, reused=reused)


if __name__ == "__main__":
    main()
