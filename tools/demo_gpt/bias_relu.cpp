// A custom op for PyTorch as teams write them: bias and activation in one call, with its own
// backward.
//
// Built twice. As it is, the op is correct. With -DDEMO_REUSE_INPUT it "saves memory" the way ONNX
// Runtime's PythonOp did before its pull request 17685: the result lies over the input's memory,
// and nothing keeps that memory alive. The caller drops its input, the allocator hands the same
// bytes to the next tensor, and the result changes under whoever still reads it. Nothing crashes;
// training just converges worse.
#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/threshold_backward.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor output_for(const at::Tensor& x) {
#ifdef DEMO_REUSE_INPUT
  return at::from_blob(x.data_ptr(), x.sizes(), x.strides(), x.options());
#else
  return at::empty_like(x);
#endif
}

at::Tensor bias_relu(const at::Tensor& x, const at::Tensor& bias) {
  at::Tensor out = output_for(x);
  at::add_out(out, x, bias);
  return at::relu_(out);
}

// ReLU's derivative follows from its result, so the input need not be kept for the backward pass.
struct BiasRelu : torch::autograd::Function<BiasRelu> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& bias) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    at::Tensor out = bias_relu(x, bias);
    ctx->save_for_backward({out});
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor out = ctx->get_saved_variables()[0];
    at::Tensor grad = at::threshold_backward(grads[0], out, 0);
    at::Tensor grad_bias = grad.sum(at::IntArrayRef{0, 1});
    return {std::move(grad), std::move(grad_bias)};
  }
};

at::Tensor bias_relu_autograd(const at::Tensor& x, const at::Tensor& bias) {
  return BiasRelu::apply(x, bias);
}

}  // namespace

TORCH_LIBRARY(demo_ops, m) { m.def("bias_relu(Tensor x, Tensor bias) -> Tensor"); }
TORCH_LIBRARY_IMPL(demo_ops, CompositeExplicitAutograd, m) { m.impl("bias_relu", bias_relu); }
TORCH_LIBRARY_IMPL(demo_ops, Autograd, m) { m.impl("bias_relu", bias_relu_autograd); }
