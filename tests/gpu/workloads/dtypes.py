"""A module whose outputs have every type that PyTorch has, with what torch itself says of each in float64."""
from common import arguments, deterministic, finish
from kept import values

NAMES = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8", "int16", "uint16", "int32",
         "uint32", "int64", "uint64", "bool", "complex64", "complex128")


def main():
    args = arguments(__doc__)
    torch = deterministic(strict=False)

    class Kinds(torch.nn.Module):
        def forward(self, x):
            signed = torch.cat([x, torch.tensor([0.0, -0.0], device=x.device)])
            whole = signed.abs().mul(20).round()
            outputs = []
            for name in NAMES:
                dtype = getattr(torch, name, None)
                if dtype is None:
                    continue
                if dtype.is_complex:
                    outputs.append(torch.complex(signed, whole).to(dtype))
                else:
                    unsigned = name.startswith("uint") or name == "bool"
                    outputs.append((whole if unsigned else signed.mul(20).round() if "int" in name else signed).to(dtype))
            special = signed.clone()
            special[:4] = torch.tensor([float("nan"), float("inf"), float("-inf"), 1e-40], device=x.device)
            return tuple(outputs) + (special,)

    model = torch.nn.Sequential(Kinds())
    with torch.no_grad():
        outputs = model(torch.randn(4097, device=args.device))
    finish(args.out, kept=[{"place": (0, "forward", "0", 0, "output:%d" % i), "values": values(torch, one)}
                           for i, one in enumerate(outputs)])


if __name__ == "__main__":
    main()
