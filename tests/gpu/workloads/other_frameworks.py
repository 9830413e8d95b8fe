"""GPU programs without PyTorch: CuPy, JAX and ONNX Runtime. The digest covers what they computed."""
import hashlib
import os

from common import arguments, finish, need, need_gpu, not_here


def cupy(steps):
    library = need("cupy")
    try:
        devices = library.cuda.runtime.getDeviceCount()
    except library.cuda.runtime.CUDARuntimeError as error:
        not_here("CuPy has no device: %s" % error)
    if devices == 0:
        not_here("CuPy sees no device")
    library.random.seed(7)
    x = library.random.rand(256, 256, dtype=library.float32)
    for _ in range(steps):
        x = library.tanh(x @ x.T / 256) + x.mean()
    return library.asnumpy(x)


def jax(steps):
    # Without autotuning, whose timing would choose other kernels in each run; nothing taken in advance.
    os.environ.setdefault("XLA_FLAGS", "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    library = need("jax")
    if library.default_backend() != "gpu":
        not_here("JAX has no GPU backend")
    numpy = need("numpy")
    import jax.numpy as jnp

    def loss(w, x):
        return jnp.mean(jnp.tanh(x @ w) ** 2)

    step = library.jit(lambda w, x: w - 0.1 * library.grad(loss)(w, x))
    w, x = library.random.normal(library.random.PRNGKey(7), (64, 64)), jnp.ones((32, 64))
    for _ in range(steps):
        w = step(w, x)
    return numpy.asarray(w)


def field(number, value):
    """One field of a protocol buffer: a number, text, bytes or a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def onnx_model(weight):
    """tanh(x @ w) in ONNX's format, so that the package onnx is not needed."""
    def value(name, *shape):
        dimensions = b"".join(field(1, field(1, size)) for size in shape)
        return field(1, name) + field(2, field(1, field(1, 1) + field(2, dimensions)))

    def node(kind, inputs, output):
        return field(1, b"".join(field(1, name) for name in inputs) + field(2, output) + field(4, kind))

    rows, columns = weight.shape
    tensor = field(1, rows) + field(1, columns) + field(2, 1) + field(8, "w") + field(9, weight.tobytes())
    graph = (node("MatMul", ("x", "w"), "h") + node("Tanh", ("h",), "y") + field(2, "g") + field(5, tensor) +
             field(11, value("x", 32, rows)) + field(12, value("y", 32, columns)))
    return field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 17))


def onnxruntime(steps, provider="CUDAExecutionProvider"):
    library, numpy = need("onnxruntime"), need("numpy")
    if provider not in library.get_available_providers():
        not_here("this ONNX Runtime has no " + provider)
    weight = numpy.random.default_rng(7).standard_normal((64, 64), dtype=numpy.float32)
    session = library.InferenceSession(onnx_model(weight), providers=[provider])
    if session.get_providers()[0] != provider:  # it goes on without one that does not load
        not_here("ONNX Runtime cannot load its " + provider)
    x = numpy.ones((32, 64), numpy.float32)
    for _ in range(steps):
        x, = session.run(None, {"x": x})
    return x


FRAMEWORKS = {one.__name__: one for one in (cupy, jax, onnxruntime)}


def main():
    args = arguments(__doc__, framework=sorted(FRAMEWORKS))
    need_gpu(args.device)
    result = FRAMEWORKS[args.framework](args.steps)
    finish(args.out, digest=hashlib.sha256(result.tobytes()).hexdigest())


if __name__ == "__main__":
    main()
