"""Operations whose tensors are known by address: matrix products (on Hopper by tensor maps), attention, a convolution, a
Triton kernel."""
from common import arguments, deterministic, finish, need_gpu


def main():
    args = arguments(__doc__)
    need_gpu(args.device)
    torch = deterministic(strict=False)
    functional = torch.nn.functional
    operations, kept = [], []

    def note(what, *tensors):
        kept.extend(tensors)  # so that each keeps its address
        operations.append({"what": what, "addresses": [tensor.data_ptr() for tensor in tensors]})

    for dtype in (torch.float32, torch.bfloat16):
        a, b = (torch.randn(2048, 2048, device="cuda", dtype=dtype) for _ in range(2))
        note("matmul_%s" % str(dtype).split(".")[1], a, b, a @ b)
    q, k, v = (torch.randn(2, 8, 512, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    note("attention_bfloat16", q, k, v, functional.scaled_dot_product_attention(q, k, v, is_causal=True))
    x, w = torch.randn(8, 64, 56, 56, device="cuda"), torch.randn(64, 64, 3, 3, device="cuda")
    note("convolution_float32", x, w, functional.conv2d(x, w, padding=1))
    note("layer_norm", x, functional.layer_norm(x, x.shape[1:]))
    try:
        from triton_op import scaled_relu_kernel

        y = torch.empty_like(x)
        scaled_relu_kernel[(x.numel() // 1024,)](x, y, 1.5, x.numel(), BLOCK=1024)
        note("triton", x, y)
    except Exception as error:
        print("no Triton:", error)
    torch.cuda.synchronize()
    finish(args.out, operations=operations)


if __name__ == "__main__":
    main()
