// Custom ops in C++ that hand out memory that they do not own, as an extension of PyTorch is built.
// aliasing_cpp.py loads it.

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <torch/library.h>

namespace {

/// ONNX Runtime's pull request 17685: what comes back lies over what was taken, and does not own
/// it.
at::Tensor borrow(const at::Tensor& x) {
  return at::from_blob(x.data_ptr(), x.sizes(), x.options());
}

/// Its schema hides that it returns its argument.
at::Tensor hide(const at::Tensor& x) { return x; }

/// Correct: what comes back owns what was taken.
at::Tensor keep(const at::Tensor& x) {
  return at::from_blob(
      x.data_ptr(), x.sizes(), [x](void*) {}, x.options());
}

}  // namespace

TORCH_LIBRARY(aliasing_cpp, library) {
  library.def("borrow(Tensor x) -> Tensor");
  library.def("borrow_gradient(Tensor gradient) -> Tensor");
  library.def("hide(Tensor x) -> Tensor");
  library.def("keep(Tensor x) -> Tensor");
}

TORCH_LIBRARY_IMPL(aliasing_cpp, CompositeExplicitAutograd, library) {
  library.impl("borrow", borrow);
  library.impl("borrow_gradient", borrow);
  library.impl("hide", hide);
  library.impl("keep", keep);
}
