"""Names and numbers in the forms of other programs."""
import math

_TORCH = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "f8e4m3fn": "float8_e4m3fn",
          "f8e5m2": "float8_e5m2", "i8": "int8", "u8": "uint8", "i16": "int16", "u16": "uint16", "i32": "int32",
          "u32": "uint32", "i64": "int64", "u64": "uint64", "bool": "bool", "c64": "complex64", "c128": "complex128",
          "f4e2m1fn": "float4_e2m1fn_x2", "f8e8m0fnu": "float8_e8m0fnu"}


def torch_dtype(name):
    return "torch." + _TORCH.get(name, "unknown")


def std_of_sample(event):
    """@return the standard deviation over count - 1, as of torch.std; a trace has the one over count."""
    n = event["finite"]
    return event["std"] * math.sqrt(n / (n - 1)) if n > 1 else math.nan
