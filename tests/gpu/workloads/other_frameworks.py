"""GPU programs without PyTorch: CuPy, JAX and ONNX Runtime. The digest covers what they computed."""
import hashlib
import os

from common import arguments, finish, need, need_gpu, not_here


def cupy(steps):
    library = need("cupy")
    if library.cuda.runtime.getDeviceCount() == 0:
        not_here("CuPy sees no device")
    library.random.seed(7)
    x = library.random.rand(256, 256, dtype=library.float32)
    for _ in range(steps):
        x = library.tanh(x @ x.T / 256) + x.mean()
    return library.asnumpy(x)


def jax(steps):
    os.environ.setdefault("XLA_FLAGS", "--xla_gpu_deterministic_ops=true")
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


def onnxruntime(steps):
    library, onnx, numpy = need("onnxruntime"), need("onnx"), need("numpy")
    if "CUDAExecutionProvider" not in library.get_available_providers():
        not_here("this ONNX Runtime has no CUDA provider")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weight = numpy.random.default_rng(7).standard_normal((64, 64), dtype=numpy.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Tanh", ["h"], ["y"])], "g",
        [helper.make_tensor_value_info("x", kind, (32, 64))], [helper.make_tensor_value_info("y", kind, (32, 64))],
        [onnx.numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session = library.InferenceSession(model.SerializeToString(), providers=["CUDAExecutionProvider"])
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
