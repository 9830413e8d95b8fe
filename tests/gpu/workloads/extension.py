"""An op in CUDA C++, compiled with the nvcc at hand and registered with torch.library."""
import shutil
import tempfile

from common import not_here

SOURCE = r"""
#include <torch/extension.h>
__global__ void cube_kernel(const float* x, float* out, int64_t count) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < count) out[i] = x[i] * x[i] * x[i];
}
torch::Tensor cube(torch::Tensor x) {
  x = x.contiguous();
  auto out = torch::empty_like(x);
  cube_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
  return out;
}
TORCH_LIBRARY(gpu_check, library) { library.def("cube(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(gpu_check, CUDA, library) { library.impl("cube", cube); }
"""


def load(torch):
    """@return a differentiable function of a tensor."""
    from torch.utils import cpp_extension

    if not shutil.which("nvcc") and not cpp_extension.CUDA_HOME:
        not_here("no nvcc to compile an op with")
    cpp_extension.load_inline("gpu_check_extension", cpp_sources="", cuda_sources=SOURCE, is_python_module=False,
                              build_directory=tempfile.mkdtemp())

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.ops.gpu_check.cube(x)

        @staticmethod
        def backward(ctx, gradient):
            x, = ctx.saved_tensors
            return 3 * x * x * gradient

    return Cube.apply
