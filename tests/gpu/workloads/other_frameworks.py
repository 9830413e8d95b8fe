"""GPU programs without PyTorch: CuPy and JAX. The digest covers what they computed."""
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


FRAMEWORKS = {one.__name__: one for one in (cupy, jax)}


def main():
    args = arguments(__doc__, framework=sorted(FRAMEWORKS))
    need_gpu(args.device)
    result = FRAMEWORKS[args.framework](args.steps)
    finish(args.out, digest=hashlib.sha256(result.tobytes()).hexdigest())


if __name__ == "__main__":
    main()
