"""Values and ways of working that few programs have. After each of them an ordinary step of training follows, whose loss is
printed.

usage: legal.py
"""
import warnings

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.func import functional_call, grad, jacrev, jvp, stack_module_state, vjp, vmap
from torch.nn.utils import parametrize
from torch.nn.utils._per_sample_grad import call_for_per_sample_grads
from torch.utils.flop_counter import FlopCounterMode

warnings.simplefilter("ignore")  # of interfaces in the making


def mlp():
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))


def x(*size):
    return torch.randn(*(size or (3, 4)))


def of_weights(model, inputs):
    """A loss as a function of the weights."""
    weights = {name: p.detach() for name, p in model.named_parameters()}
    return weights, lambda w: functional_call(model, w, (inputs,)).square().mean()


def vectorized_jacobian(model):
    return torch.autograd.functional.jacobian(model, x(), vectorize=True)


def vectorized_hessian(model):
    return torch.autograd.functional.hessian(lambda y: model(y).square().sum(), x(1, 4), vectorize=True)


def batched_gradients(model):
    y = model(x().requires_grad_())
    return torch.autograd.grad(y, list(model.parameters()), torch.eye(y.numel()).view(-1, *y.shape), is_grads_batched=True)


def batched_gradients_of_inputs(model):
    inputs = x().requires_grad_()
    y = model(inputs)
    return torch.autograd.grad(y, inputs, torch.eye(y.numel()).view(-1, *y.shape), is_grads_batched=True, retain_graph=True)


class Square(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.saved_tensors[0] * gradient

    @staticmethod
    def jvp(ctx, tangent):
        return 2 * tangent


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    def backward(ctx, gradient):
        return 3 * ctx.saved_tensors[0] ** 2 * gradient


class Applied(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function.apply(x)


def batched_function(model):
    own = nn.Sequential(model, Applied(Square))
    inputs = x()
    return [vmap(own)(inputs), vmap(jacrev(own))(inputs), vectorized_jacobian(own), vectorized_jacobian(nn.Sequential(model, Applied(Cube)))]


def functional_gradient(model):
    weights, loss = of_weights(model, x())
    return list(grad(loss)(weights).values())


def per_sample_gradients(model):
    weights, _ = of_weights(model, x())
    return list(vmap(grad(lambda w, one: functional_call(model, w, (one,)).sum()), (None, 0))(weights, x()).values())


def forward_mode(model):
    inputs, tangent = x(), x()
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(inputs, tangent)
        y, derivative = torch.autograd.forward_ad.unpack_dual(model(dual))
    return [y, derivative, *jvp(model, (inputs,), (tangent,)), *vjp(model, inputs)[1](y),
            jvp(lambda i: vmap(model)(i), (inputs,), (tangent,))[1]]


def forward_mode_weights(model):
    weights, loss = of_weights(model, x())
    return list(jvp(loss, (weights,), ({name: torch.ones_like(w) for name, w in weights.items()},)))


def forward_over_reverse(model):
    return torch.func.hessian(lambda y: model(y).sum())(x(1, 4))


def ensemble(model):
    members = [mlp() for _ in range(3)]
    weights, buffers = stack_module_state(members)
    y = vmap(lambda w, b, i: functional_call(members[0], (w, b), (i,)), (0, 0, None))(weights, buffers, x())
    y.sum().backward()
    return [y] + [w.grad for w in weights.values()]


def expanded_weights(model):
    call_for_per_sample_grads(model, loss_reduction="sum")(x()).sum().backward()
    samples = [p.grad_sample for p in model.parameters()]
    for p in model.parameters():
        p.grad_sample = None
    return samples


def nested(model):
    given = torch.nested.nested_tensor([x(2, 4), x(3, 4)])
    jagged = torch.nested.nested_tensor([x(2, 4), x(3, 4)], layout=torch.jagged)
    one, other = nn.Sequential(nn.Linear(4, 4), nn.ReLU())(given), model(jagged)
    (torch.nested.to_padded_tensor(one, 0.0).sum() + other.values().sum()).backward()
    return [one.to_padded_tensor(0.0), other.values()]


def sparse(model):
    embedding = nn.Embedding(6, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(embedding.parameters())
    embedding(torch.tensor([1, 2, 1])).sum().backward()
    optimizer.step()
    given = torch.eye(4).to_sparse()
    layouts = [nn.Identity()(torch.eye(4).to_sparse_csr()), nn.Identity()(torch.eye(4).to_sparse_bsr((2, 2))), nn.Identity()(given)]
    return [embedding.weight, torch.sparse.mm(given, model(x(4, 4))), *[layout.to_dense() for layout in layouts]]


class Computed(nn.Module):
    def __init__(self, compute):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))
        self.compute = compute

    def forward(self, x):
        return self.compute(self.weight, x)


def trained_without_storage(model):
    """Trains modules whose nodes of autograd have saved tensors without a storage."""
    given, inner = torch.eye(4).to_sparse(), nn.Linear(4, 4)
    computed = (lambda w, x: torch.mm(given, w), lambda w, x: torch.addmm(x, given, w), lambda w, x: torch.mm((w * 1).to_sparse(), x),
                lambda w, x: vmap(grad(lambda row: inner(row).exp().sum()))(x @ w),
                lambda w, x: grad(lambda v: nn.functional.linear(x, v).square().sum())(w))
    for compute in computed:
        made = Computed(compute)
        optimizer = torch.optim.SGD(made.parameters(), lr=0.01)
        for _ in range(4):
            optimizer.zero_grad()
            made(x(4, 4)).square().sum().backward()
            optimizer.step()
        yield made.weight


class Parts(nn.Module):
    """Takes and gives tensors that are not dense, several at once."""

    def forward(self, kinds):
        return {name: kind for name, kind in kinds.items()}


def other_layouts(model):
    inner = nn.Linear(2, 2, dtype=torch.complex64)
    value = torch.view_as_real(inner(torch.randn(2, 2, dtype=torch.complex64)).conj().resolve_conj()).sum()
    value.backward()
    quantized = torch.quantize_per_tensor(x(), 0.1, 0, torch.qint8)
    kinds = Parts()({"quantized": quantized, "channels": torch.quantize_per_channel(x(), torch.ones(3), torch.zeros(3), 0, torch.quint8),
                     "conjugate": torch.randn(2, dtype=torch.complex64).conj(), "negative": torch.randn(2, dtype=torch.complex64).conj().imag,
                     "meta": torch.empty(3, device="meta"), "empty": torch.empty(0, 4), "scalar": torch.tensor(2.0),
                     "strided": x(6, 4)[::2, 1:3], "expanded": x(1, 4).expand(3, 4), "bits": torch.zeros(3, dtype=torch.uint16),
                     "bool": torch.ones(2, dtype=torch.bool), "f8": torch.ones(2).to(torch.float8_e4m3fn), "half": x().half(),
                     "mkldnn": x().to_mkldnn() if torch.backends.mkldnn.is_available() else None})
    return [value, kinds["quantized"].int_repr(), kinds["strided"], inner.weight.grad.abs()]


def dynamic_quantization(model):
    made = torch.ao.quantization.quantize_dynamic(mlp(), {nn.Linear}, dtype=torch.qint8)
    return [made(x())]


def meta(model):
    with torch.device("meta"):
        shapes = mlp()
    y = shapes(torch.empty(3, 4, device="meta"))
    y.sum().backward()
    torch.optim.SGD(shapes.parameters(), lr=0.1).step()
    shapes.to_empty(device="cpu").load_state_dict(model.state_dict())
    return [shapes(x())]


def fake(model):
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        shapes = mlp()
        shapes(torch.empty(3, 4)).sum().backward()
        torch.optim.Adam(shapes.parameters()).step()
        model(mode.from_tensor(torch.ones(3, 4)))
    return []


class Two(torch.Tensor):
    """Wraps two tensors, as those of quantisation, DTensor and nested tensors wrap theirs."""

    @staticmethod
    def __new__(cls, a, b):
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype, device=a.device, requires_grad=a.requires_grad)

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __repr__(self):
        return "Two"

    def __tensor_flatten__(self):
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        return Two(inner["a"], inner["b"])

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        part = lambda name: torch.utils._pytree.tree_map_only(Two, lambda two: getattr(two, name), (args, kwargs or {}))
        (one, one_kw), (other, other_kw) = part("a"), part("b")
        a, b = function(*one, **one_kw), function(*other, **other_kw)
        if isinstance(a, torch.Tensor) and function is not torch.ops.aten._local_scalar_dense.default:
            result = Two(a, b)
            return torch.utils._python_dispatch.return_and_correct_aliasing(function, args, kwargs or {}, result)
        return a


def two():
    value = x()
    return Two(value, value.clone())


def wrapped_input(model):
    y = model(two().requires_grad_())
    y.sum().backward()
    return [y.a, y.b]


def wrapped_weights(model):
    made = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    made[0].weight = nn.Parameter(Two(made[0].weight.detach(), made[0].weight.detach().clone()))
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1, foreach=False)
    for _ in range(3):
        optimizer.zero_grad()
        made(x()).sum().backward()
        optimizer.step()
    made.to("cpu")
    return [made[0].weight.a]


class Doubled(nn.Module):
    def forward(self, w):
        return w * 2


def others(model):
    """Ways of working that are legal everywhere."""
    made = mlp()
    parametrize.register_parametrization(made[0], "weight", Doubled())
    with torch.inference_mode():
        inferred = made(x())
    with torch.random.fork_rng(), torch.no_grad(), parametrize.cached():
        cached = made(x())
    traced = torch.fx.symbolic_trace(mlp())(x())
    with torch.autograd.graph.save_on_cpu(), torch.autograd.detect_anomaly(check_nan=False):
        made(x()).sum().backward()
    made.share_memory()
    with FlopCounterMode(display=False) as flops:
        model(x()).sum().backward()
    graph = make_fx(lambda i: torch.func.grad(lambda j: model(j).sum())(i))(x())
    return [torch.tensor([flops.get_total_flops(), len(graph.graph.nodes)]), graph(x()), inferred, cached, traced,
            torch.func.linearize(model, x())[1](x())]


CASES = (vectorized_jacobian, vectorized_hessian, batched_gradients, batched_gradients_of_inputs, batched_function,
         functional_gradient, per_sample_gradients, forward_mode, forward_mode_weights, forward_over_reverse, ensemble,
         expanded_weights, nested, sparse, trained_without_storage, other_layouts, dynamic_quantization, meta, fake,
         wrapped_input, wrapped_weights, others)
TIMES = 6  # of each: more often than an observation may fail

torch.manual_seed(0)
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.MSELoss()
for case in CASES:
    torch.manual_seed(0)
    for _ in range(TIMES):
        found = case(model)
        found = [found] if isinstance(found, torch.Tensor) else list(found)
    digest = [float(t.detach().double().sum()).hex() for t in found]
    optimizer.zero_grad()
    loss = criterion(model(x()), torch.zeros(3, 4))
    loss.backward()
    optimizer.step()
    print(case.__name__, digest, "then", loss.item().hex(), flush=True)
