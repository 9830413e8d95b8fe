"""Faults of a compiler, planted where it makes the code of a region and not in the program: lowering_faults.plant(NAME).

TEN is the list that is counted in docs/lab/cases.md. It was written before any of it had been run, and is not changed: a fault
that the product is mended for is no longer counted, and a new one takes its place in FRESH. UPSTREAM are two bugs of PyTorch 2.10
rebuilt. A fault of a graph changes a node that Inductor is about to lower, one of a text a kernel that it has written.
"""
import hashlib
import linecache
import re
import sys

import torch

aten = torch.ops.aten


class Fault:
    """`model`: name in compiled.py. `modules`: one of them is where the fault lies. `graph`: (whether backward, function that
    changes a node and says so), or `text`: function that changes the source of a kernel, or returns it as it is. `base`: the
    runs that the faulty one is compared with."""

    def __init__(self, model, modules, graph=None, text=None, base=("eager", "good")):
        self.model, self.modules, self.graph, self.text, self.base = model, modules, graph, text, base


def _module(node):
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    return re.sub(r"^L\['\w+'\]\.?", "", list(stack.values())[-1][0]) if stack else ""


def epsilon(node):
    """The second epsilon of a norm is 100 times larger."""
    if node.target is aten.add.Tensor and node.args[1] == 1e-05 and _module(node).endswith("0.norm"):
        node.args = (node.args[0], 1e-3)
        return True


def axis(node):
    """A sum over the columns and not the rows."""
    if node.target is aten.sum.dim_IntList and list(node.args[1]) == [0]:
        node.args = (node.args[0], [1], *node.args[2:])
        return True


def sign(node):
    """A difference in the backward pass is a sum."""
    if node.target is aten.sub.Tensor:
        node.target = aten.add.Tensor
        return True


def swapped(node):
    """Both choices of a where changed places."""
    if node.target is aten.where.self:
        node.args = (node.args[0], node.args[2], node.args[1])
        return True


def cast(node):
    """A value is rounded to bf16 on its way."""
    if node.target is aten.erf.default and "h.1" in _module(node):
        users = list(node.users)
        with node.graph.inserting_after(node):
            low = node.graph.call_function(torch.ops.prims.convert_element_type.default, (node, torch.bfloat16))
        with node.graph.inserting_after(low):
            high = node.graph.call_function(torch.ops.prims.convert_element_type.default, (low, torch.float32))
        low.meta, high.meta = dict(node.meta), dict(node.meta)
        low.meta["val"] = node.meta["val"].to(torch.bfloat16)
        for user in users:
            user.replace_input_with(node, high)
        return True


def unscaled(node):
    """The elements that a dropout keeps are not scaled."""
    if node.target is aten.mul.Tensor and isinstance(node.args[1], float) and node.args[1] > 1:
        node.args = (node.args[0], 1.0)
        return True


def tail(source):
    """The elements after the last whole vector are left out."""
    return source.replace("if(C10_UNLIKELY(", "if(false && C10_UNLIKELY(", 1)


def accumulate(source):
    """A sum is its last term."""
    return re.sub(r"tmp_acc0_vec = tmp_acc0_vec \+ (\w+);", r"tmp_acc0_vec = \1;", source, count=1)


def broadcast(source):
    """All columns get the first element of a vector."""
    return re.sub(r"at::vec::Vectorized<float>::loadu\((in_ptr\d+) \+ static_cast<int64_t>\(x1\), [^;]*\);",
                  r"at::vec::Vectorized<float>(\1[0]);", source, count=1)


def index(source):
    """A lookup takes the row after the right one."""
    return re.sub(r"32L\*(tmp\d+)\)", r"32L*((\1 + 1) % 50))", source)


TEN = {
    "epsilon": Fault("gpt", {"h.0.norm"}, graph=(False, epsilon)),
    "axis": Fault("odd", {"up", "norm", "mix"}, graph=(True, axis)),
    "tail": Fault("odd", {"up", "norm", "mix"}, text=tail),
    "sign": Fault("gpt", {"h.1.norm", "h.1.mlp"}, graph=(True, sign)),
    "accumulate": Fault("gpt", {"tokens", "h.0.before", "h.0"}, text=accumulate),
    "broadcast": Fault("odd", {"norm", "mix"}, text=broadcast),
    "swapped": Fault("odd", {"mix"}, graph=(False, swapped)),
    "cast": Fault("gpt", {"h.1.mlp"}, graph=(False, cast)),
    "index": Fault("gpt", {"tokens", "h.0.before", "h.0"}, text=index),
    "unscaled": Fault("dropped", {"1"}, graph=(False, unscaled), base=("good",)),
}


def narrowed(source):
    """The result of a kernel with an erf is rounded to bf16."""
    if ".erf()" not in source:
        return source
    return re.sub(r"(tmp\d+)\.store\(", r"at::vec::convert<float,1,c10::BFloat16,1>(at::vec::convert<c10::BFloat16,1,float,1>(\1)).store(",
                  source, count=1)


def garbage(source):
    """A sum over a plane contains what was in memory: the workspace of a reduction was not cleared (pytorch#190796)."""
    return re.sub(r"(\w+)\.store\((out_ptr\d+) ", r"(\1 + at::vec::Vectorized<float>(1e37f)).store(\2 ", source, count=1) \
        if "tmp_acc0_vec" in source and "backward" not in source else source


def dropped_view(text):
    """The kernel's result for a view of a larger tensor goes into a workspace, and the view's name is reused for its sum
    (pytorch#193061, `_codegen_mix_order_reduction` of 2.10)."""
    views = {name: (size, stride) for name, size, stride in
             re.findall(r"(\w+) = reinterpret_tensor\(\w+, (\(.*?\)), (\(.*?\)), \d+\)  # alias", text)}
    for line in text.split("\n"):
        call = re.match(r"( +)(cpp_fused_\w+)\((.*)\)$", line)
        view = next((name for name in views if call and name in call[3].split(", ")), None)
        if view:
            size, stride = views[view]
            changed = "%sworkspace_0 = empty_strided_cpu(%s, %s, torch.float32); %s(%s); %s = workspace_0.view(1, -1).sum(dim=0).view(%s)" % (
                call[1], size, stride, call[2], re.sub(r"\b%s\b" % view, "workspace_0", call[3]), view, size)
            print("fault:", call[2], view, file=sys.stderr)
            return text.replace(line, changed)
    return text


# `cast` changes nothing: Inductor removes the pair of casts, and the losses are bit-equal. `narrowed` takes its place.
FRESH = {"narrowed": Fault("gpt", {"h.0.mlp"}, text=narrowed)}
UPSTREAM = {
    "dropped_view": Fault("table", {"", "norm"}, base=("eager", "good")),
    "garbage": Fault("planes", {"conv", "proj", ""}, text=garbage),
}
ALL = {**TEN, **FRESH, **UPSTREAM}


class _Pass:
    """Inductor's last pass over a graph before it lowers it; the first node that the fault applies to is changed."""

    def __init__(self, name, is_backward, change):
        self._name, self._is_backward, self._change = name, is_backward, change
        self._done = False

    def __call__(self, graph):
        is_backward = any(node.op == "placeholder" and node.name.startswith("tangents") for node in graph.nodes)
        if self._done or is_backward != self._is_backward:
            return
        for node in list(graph.nodes):
            if node.op == "call_function" and self._change(node):
                self._done = True
                return

    def uuid(self):
        return "fault " + self._name


def watch_kernels(change=None):
    """Prints the name and a hash of each C++ kernel on stderr, before `change` (Fault.text) changes the first that it can."""
    from torch._inductor.async_compile import AsyncCompile
    original, done = AsyncCompile.cpp_pybinding, []

    def cpp_pybinding(self, types, source):
        if change is not None and not done:
            changed = change(source)
            if changed != source:
                done.append(source)
                source = changed
        caller = sys._getframe(1)
        kernel = linecache.getline(caller.f_code.co_filename, caller.f_lineno).split(" = ")[0]
        print("kernel:", kernel, hashlib.sha256(source.encode()).hexdigest()[:16], file=sys.stderr)
        return original(self, types, source)

    AsyncCompile.cpp_pybinding = cpp_pybinding


def plant(name):
    """@param name  of ALL; "good": no fault, the kernels alone are printed"""
    fault = ALL.get(name)
    watch_kernels(fault.text if fault is not None else None)
    if name == "dropped_view":
        import torch._inductor.config as config
        from torch._inductor.codecache import PyCodeCache
        config.fx_graph_cache, write = False, PyCodeCache.write.__func__
        PyCodeCache.write = classmethod(lambda cls, text, *args, **kwargs: write(cls, dropped_view(text), *args, **kwargs))
    if fault is not None and fault.graph is not None:
        import torch._inductor.config as config
        config.post_grad_custom_post_pass = _Pass(name, *fault.graph)
