"""The reader of the files that Inductor generates for regions, and the observation of their functions. Needs no torch."""
import os
import sys
import types
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "interposer", "observer"))

from convtrace_observer.base import values  # noqa: E402
from convtrace_observer.compiled import calls, graph, kernel_source, sources, twin, wrapper_source  # noqa: E402

# As PyTorch 2.11 writes a region for a GPU, with less in it.
REGION = """# AOT ID: ['3_forward']
async_compile = AsyncCompile()

# Topologically Sorted Source Nodes: [gelu], Original ATen: [aten.gelu]
triton_poi_fused_gelu_2 = async_compile.triton('triton_poi_fused_gelu_2', '''
@triton_heuristics.pointwise(
    inductor_meta={'mutated_arg_names': ['in_out_ptr0'], 'num_load': 2},
)
@triton.jit
def triton_poi_fused_gelu_2(in_out_ptr0, in_ptr0, out_ptr1, xnumel, XBLOCK : tl.constexpr):
    pass
''', device_str='cuda')

cpp_fused_sum_0 = async_compile.cpp_pybinding(['const float*', 'float*', 'const int64_t'], '''
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const float* in_ptr0,
                       float* out_ptr0,
                       const int64_t ks0)
{
}
''')

class Runner:
    def call(self, args):
        primals_1, primals_2, s7 = args
        args.clear()
        with torch.cuda._DeviceGuard(0):
            buf0 = empty_strided_cuda((4, 8), (8, 1), torch.float32)
            # Topologically Sorted Source Nodes: [linear], Original ATen: [aten.mm]
            extern_kernels.mm(primals_1, reinterpret_tensor(primals_2, (8, 8), (1, 8), 0), out=buf0)
            buf1 = reinterpret_tensor(buf0, (2, 16), (16, 1), 0); del buf0  # reuse
            buf2 = empty_strided_cuda((4, 8), (8, 1), torch.float32)
            # Topologically Sorted Source Nodes: [linear, gelu], Original ATen: [aten.gelu]
            stream0 = get_raw_stream(0)
            triton_poi_fused_gelu_2.run(buf1, primals_1, buf2, 32, stream=stream0)
            buf3 = torch.ops.aten.topk.default(buf2, 3)
            buf4 = buf3[0]
            buf5 = empty_strided_cuda((4, ), (1, ), torch.float32)
            cpp_fused_sum_0(buf4, buf5, s7)
        return (buf5, primals_1, buf1, )
"""
LINES = [(24, 'File "model.py", line 3, in forward\n'), (38, 'File "model.py", line 5, in forward\n')]


class Node:
    def __init__(self, name, module, inputs=(), op="call_function", line=3, target=None):
        self.name, self.op, self.target, self.all_input_nodes = name, op, target or name, list(inputs)
        self.users = {}
        for one in inputs:
            one.users[self] = None
        self.meta = {"stack_trace": 'File "model.py", line %d, in forward\n' % line}
        if module:
            self.meta["nn_module_stack"] = {str(len(module)): ("L['self']." + module, object)}


def graph_of(*nodes):
    return graph.Graph(types.SimpleNamespace(nodes=nodes))


class Reading(unittest.TestCase):
    def setUp(self):
        self.function, = wrapper_source.read(REGION, LINES)
        self.calls = self.function.calls

    def test_the_kind_of_a_region(self):
        self.assertEqual(wrapper_source.region_kind(REGION), ("3", "forward"))
        self.assertIsNone(wrapper_source.region_kind("import triton\n"))

    def test_calls_and_their_operands(self):
        found = [(call.kind, call.kernel, call.op, [name for name, _ in call.inputs], [name for name, _ in call.outputs])
                 for call in self.calls]
        self.assertEqual(found, [
            ("extern", "extern_kernels.mm", "aten::mm", ["0", "1"], ["0"]),
            ("kernel", "triton_poi_fused_gelu_2", "inductor::triton_poi_fused_gelu", ["in_out_ptr0", "in_ptr0", "xnumel"],
             ["in_out_ptr0", "out_ptr1"]),
            ("extern", "torch.ops.aten.topk.default", "aten::topk", ["0"], ["0"]),
            ("kernel", "cpp_fused_sum_0", "inductor::cpp_fused_sum", ["in_ptr0", "ks0"], ["out_ptr0"])])

    def test_what_they_were_made_of(self):
        self.assertEqual([call.nodes for call in self.calls], [("linear",), ("linear", "gelu"), (), ()])
        self.assertEqual([call.trace.count("line 5") for call in self.calls], [0, 0, 0, 1])

    def test_variables(self):
        self.assertEqual(self.function.arguments, ["primals_1", "primals_2", "s7"])
        self.assertEqual(self.function.returned, ["buf5", "primals_1", "buf1"])
        self.assertIn((1, "buf1", "buf0"), self.function.aliases)


    def test_other_calls(self):
        text = """# AOT ID: ['0_inference']
def call(args):
    arg0_1, = args
    buf0 = torch.ops.mine.op.default(arg0_1)
    buf1 = buf0[0]
    buf2 = empty_strided_cpu((4, ), (1, ), torch.float32)
    extern_kernels.mm(buf1, buf2, out=buf2)
    (buf3, buf4) = torch.ops.aten.topk.default(buf1, 3)
    buf5, = self.partitions[0]([arg0_1])
    return (buf2, buf3)
"""
        function, = wrapper_source.read(text, [])
        self.assertEqual([call.op for call in function.calls], ["aten::mm"])
        made_of = sources.Sources(function, graph_of())
        self.assertEqual([name for name, _ in made_of.read[function.calls[0]]], ["0"])
        function, = wrapper_source.read(text, [], lambda namespace: namespace == "mine")
        self.assertEqual([(call.kind, call.op) for call in function.calls], [("custom", "mine::op"), ("extern", "aten::mm")])
        made_of = sources.Sources(function, graph_of())
        self.assertEqual([name for name, _ in made_of.read[function.calls[1]]], ["0"])


class Modules(unittest.TestCase):
    def ends(self, *nodes):
        return {name: node.ends for name, node in graph_of(*nodes, Node("output", "", nodes[-1:], op="output")).nodes.items()}

    def test_what_switches_a_mode_ends_no_module(self):
        x, linear = Node("l_x_", "", op="placeholder"), Node("h", "block.fc")
        off, side, on = Node("_set_grad_enabled", ""), Node("s", "block", [x]), Node("_set_grad_enabled_1", "")
        off.meta["example_value"] = on.meta["example_value"] = None
        product = Node("product", "block", [linear, side])
        ends = self.ends(x, linear, off, side, on, product, Node("head", "head", [product]))
        self.assertEqual(ends, {"_set_grad_enabled": 0, "_set_grad_enabled_1": 0, "h": 1, "s": 0, "product": 1, "head": 1})

    def test_a_module_returns_what_is_taken_outside(self):
        x = Node("l_x_", "", op="placeholder")
        up = Node("up", "mlp.up", [x])
        kept = Node("kept", "mlp", [up])  # nothing takes it
        size = Node("size", "mlp", [up])
        size.meta["example_value"] = 4
        ends = self.ends(x, up, kept, size, Node("view", "", [up, size]))
        self.assertEqual(ends, {"up": 1, "kept": 0, "size": 0, "view": 0})

    def test_the_node_of_each_call(self):
        function, = wrapper_source.read(REGION, LINES)
        x, weight = Node("l_x_", "", op="placeholder"), Node("l_w_", "", op="placeholder")
        linear = Node("linear", "mlp.up", [x, weight])
        gelu = Node("gelu", "mlp", [linear])
        known = graph_of(x, weight, linear, gelu, Node("total", "", [gelu], line=5), Node("output", "", op="output"))
        made_of = sources.Sources(function, known)
        self.assertEqual([made_of.of[call].name for call in function.calls[:2]], ["linear", "gelu"])
        self.assertEqual(made_of.of[function.calls[3]].name, "total")
        self.assertEqual(known.nodes["linear"].arguments, {0, 1})
        # Memory that nothing was written to is no input; what a call wrote through a view is one.
        self.assertEqual([[name for name, _ in made_of.read[call]] for call in function.calls],
                         [["0", "1"], ["in_out_ptr0", "in_ptr0"], ["0"], ["in_ptr0", "ks0"]])

    def test_a_weight_in_another_layout_is_the_argument(self):
        function, = wrapper_source.read("""# AOT ID: ['0_forward']
async_compile = AsyncCompile()
cpp_fused_0 = async_compile.cpp_pybinding(['const float*', 'const float*', 'float*', 'float*'], '''
extern "C"  void  kernel(const float* in_ptr0, const float* in_ptr1, float* out_ptr0, float* out_ptr1)
{
    auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];
    out_ptr0[static_cast<int64_t>(x1)] = tmp0;
    auto tmp1 = in_ptr1[static_cast<int64_t>(x0)];
    out_ptr1[static_cast<int64_t>(x0)] = tmp0 + tmp1;
}
''')
def call(args):
    primals_1, primals_2 = args
    cpp_fused_0(primals_1, primals_2, buf0, buf1)
    buf2 = extern_kernels.convolution(primals_2, buf0)
    return (buf2, buf1, )
""", [])
        numbers = sources.Sources(function, graph_of()).numbers
        self.assertEqual(numbers, {"primals_1": 0, "primals_2": 1, "buf0": 0})

    def test_of_equal_lines_the_nearest_node(self):
        inputs = [Node("l_%d_" % number, "", op="placeholder") for number in range(3)]
        nodes = [Node("act_%d" % number, "h.%d" % number, [one], target="act") for number, one in enumerate(inputs)]
        known = graph_of(*inputs, *nodes)
        for number, node in enumerate(nodes):
            near = [known.argument(number)]
            self.assertEqual(known.find("cpp_fused_act", (), node.meta["stack_trace"], near, None, False).name, node.name)

    def test_no_node_runs_before_what_it_takes(self):
        x = Node("l_x_", "", op="placeholder")
        adds = [Node("add", "h.0", [x])]
        for number in range(1, 4):
            adds.append(Node("add_%d" % number, "h.%d" % number, [adds[-1]], target="add"))
        known = graph_of(x, *adds)
        trace = x.meta["stack_trace"]
        # Values of all blocks before it, or after it in the backward pass.
        self.assertEqual(known.find("cpp_fused_add", (), trace, [1, 1, 2], 3, False).name, "add_2")
        self.assertEqual(known.find("cpp_fused_add", (), trace, [1, 1, 3, 4], 2, True).name, "add_1")

    def test_lines_of_an_older_version_of_the_program(self):
        x = Node("l_x_", "", op="placeholder")
        known = graph_of(x, Node("gelu", "mlp", [x], line=9))
        self.assertEqual(known.find("cpp_fused_gelu_0", (), 'File "model.py", line 7, in forward', [], None, False).name, "gelu")
        self.assertIsNone(known.find("cpp_fused_gelu_0", (), 'File "other.py", line 9, in forward', [], None, False))

    def test_a_name_that_calls_share_is_no_node_of_another_line(self):
        x = Node("l_x_", "", op="placeholder")
        first, second = Node("linear", "a", [x]), Node("linear_1", "a", [x], line=4)
        known = graph_of(x, first, second)
        self.assertEqual(known.find("", ("linear",), second.meta["stack_trace"], [], None, True).name, "linear_1")

    def test_of_calls_that_share_a_name_the_one_whose_gradient_is_there(self):
        x, weight = Node("l_x_", "", op="placeholder"), Node("l_w_", "", op="placeholder")
        cells = [Node("cell", "cell", [x, weight])]
        cells += [Node("cell_%d" % number, "cell", [cells[0], weight], target="cell") for number in (1, 2)]
        known = graph_of(x, weight, *cells)
        trace = x.meta["stack_trace"]
        self.assertEqual([known.find("", ("cell",), trace, [2, bound], bound, True).name for bound in (4, 3, 2)],
                         ["cell_2", "cell_1", "cell"])
        self.assertEqual(known.find("", ("cell", "cell_1"), trace, [], None, False).name, "cell_1")

    def test_operations_without_a_line(self):
        x = Node("l_x_", "", op="placeholder")
        linear = Node("linear", "0", [x])
        dropout = Node("dropout", "1", [linear])
        last = Node("linear_1", "2", [dropout], target="linear")
        for node in linear, dropout, last:
            del node.meta["stack_trace"]
        known = graph_of(x, linear, dropout, last)
        self.assertEqual(known.find("cpp_fused_native_dropout_0", (), "", [1], 2, False).name, "dropout")
        self.assertEqual(known.find("cpp_fused_native_dropout_backward_0", (), "", [3], 2, True).name, "dropout")
        self.assertIsNone(known.find("cpp_fused_sum_1", (), "", [3], 2, True))
        self.assertIsNone(known.find("", (), "", [1], None, False))


class HeldBack(unittest.TestCase):
    """Calls of C++ kernels, which Inductor writes after the line map's entry of the operation that follows them."""

    def traces(self, *lines):
        """@param lines  those of a function; "# N" starts an entry of the line map for line N, "# 0" one without a line
        @return the traces of the calls"""
        text = "cpp_fused_a_0 = async_compile.cpp_pybinding([], '''extern \"C\" void kernel(float* out_ptr0) {}''')\n"
        text = "async_compile = AsyncCompile()\n" + text + "def call(args):\n"
        line_map = []
        for line in lines:
            if line.startswith("# "):
                line_map.append((text.count("\n") + 1, "line " + line[2:] if line != "# 0" else None))
            else:
                text += "    %s\n" % line
        text += "    return (buf0, )\nrunner = Runner(partitions=[])\n"
        return [call.trace for function in wrapper_source.read(text, line_map) for call in function.calls]

    def test_the_place_of_an_operation_behind_it_is_not_that_of_a_kernel(self):
        mm = "extern_kernels.mm(buf0, buf1, out=buf2)"
        self.assertEqual(self.traces("# 3", "cpp_fused_a_0(buf0)", "del buf3"), ["line 3"])
        self.assertEqual(self.traces("# 3", "buf0 = empty_strided_cpu()", "# 4", "cpp_fused_a_0(buf0)", "del buf3", mm), ["line 3", "line 4"])
        self.assertEqual(self.traces("# 3", "# 4", "cpp_fused_a_0(buf0)", "# 5", "cpp_fused_a_0(buf0)"), ["line 4", "line 5"])
        self.assertEqual(self.traces("# 3", "# 0", "# 4", "cpp_fused_a_0(buf0)", mm), ["line 3", "line 4"])
        # The second kernel has no entry in the line map.
        self.assertEqual(self.traces("# 3", mm, "# 4", "cpp_fused_a_0(buf0)", mm), ["line 3", "", "line 4"])


class Outputs(unittest.TestCase):
    def shaped(self, dims, shape):
        value = values.Memory(*[0] * 10, ())._replace(rank=len(dims) // 2, dims=dims)
        found = calls._shaped(value, shape)
        return None if found is None else found.dims[:found.rank]

    def test_a_module_returns_no_value_of_another_shape(self):
        self.assertEqual(self.shaped((8, 16, 16, 1), (8, 16)), (8, 16))
        self.assertEqual(self.shaped((8, 16, 16, 1), (2, 4, 16)), (2, 4, 16))  # a product of all rows
        self.assertEqual(self.shaped((2, 3, 4, 4, 48, 1, 12, 3), (2, 3, 4, 4)), (2, 3, 4, 4))  # channels are last
        for shape in (8,), (8, 15), (16, 16), (8, 16, 2), ():
            self.assertIsNone(self.shaped((8, 16, 16, 1), shape))
        self.assertIsNone(self.shaped((16, 8, 1, 16), (8, 16)))  # elements in another order
        self.assertIsNone(self.shaped((8, 16, 32, 1), (8, 16)))


class Twins(unittest.TestCase):
    SOURCE = "def call(args):\n    a, = args\n    if True:\n        b = work(a)\n    return b\n"

    def test_both_versions_of_a_function(self):
        import ast
        said, names = [], {"work": lambda a: said.append("work") or a + 1}
        exec(self.SOURCE, names)
        names[twin.BEFORE] = lambda *told: said.append(("before", *told))
        names[twin.AFTER] = lambda *told: said.append(("after", *told))
        node = ast.parse(self.SOURCE).body[0]
        statement = node.body[1].body[0]
        name = [("0", ast.Name("a", ast.Load()))]
        both = twin.Twin(names["call"], node, {id(statement): (7, name, [("0", ast.Name("b", ast.Load()))])})
        function = names["call"]
        self.assertEqual((function([1]), said), (2, ["work"]))
        both.switch(True)
        said.clear()
        self.assertEqual((function([1]), said), (2, [("before", 7, (1,)), "work", ("after", 7, (2,))]))
        both.switch(False)
        said.clear()
        self.assertEqual((function([1]), said), (2, ["work"]))

    def test_a_call_inside_a_module_leaves_it_also_if_it_raises(self):
        import ast
        said, names = [], {"work": lambda a: said.append("work") or 1 / a}
        exec(self.SOURCE, names)
        names[twin.ENTER] = lambda number: said.append(("enter", number)) or "before"
        names[twin.LEAVE] = lambda before: said.append(("leave", before))
        node = ast.parse(self.SOURCE).body[0]
        twin.Twin(names["call"], node, {id(node.body[1].body[0]): 7}).switch(True)
        self.assertEqual(names["call"]([1]), 1)
        self.assertEqual(said, [("enter", 7), "work", ("leave", "before")])
        with self.assertRaises(ZeroDivisionError):
            names["call"]([0])
        self.assertEqual(said[3:], said[:3])


class KernelSources(unittest.TestCase):
    def test_outputs_are_made_of_what_the_source_stores_in_them(self):
        source = """
            auto out_ptr1 = in_out_ptr0;
            auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(x0));
            auto tmp1 = [&]
            {
                auto tmp2 = in_ptr1[static_cast<int64_t>(x0)];
                return tmp2;
            }
            ;
            auto tmp3 = tmp0 > 0 ? tmp1() : static_cast<float>(0.0);
            tmp3.store(out_ptr0 + static_cast<int64_t>(x0));
            tmp_acc0_vec = tmp_acc0_vec + tmp0;
            out_ptr1[static_cast<int64_t>(x0)] = static_cast<float>(tmp_acc0_vec);
            auto tmp0 = static_cast<float>(x0);
            out_ptr2[static_cast<int64_t>(x0)] = tmp0;"""
        self.assertEqual(kernel_source.made_of(source, ["in_ptr0", "in_ptr1"], ["out_ptr0", "in_out_ptr0", "out_ptr2"]),
                         {"out_ptr0": ["in_ptr0", "in_ptr1"], "in_out_ptr0": ["in_ptr0"], "out_ptr2": []})

    def test_of_a_transposition(self):
        source = """
            alignas(std::max(std::size_t(16), alignof(float))) float tmp1[16*16];
            auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(x2 + 9L*x1), static_cast<int64_t>(9L));
            tmp0.store(tmp1 + static_cast<int64_t>(9L*x1_inner), static_cast<int64_t>(9L));
            transpose_mxn<float,static_cast<int64_t>(3L),static_cast<int64_t>(9L),false>(tmp1, 9L, out_ptr0 + static_cast<int64_t>(x1 + 3L*x2), 3L);
            alignas(std::max(std::size_t(16), alignof(float))) float tmp1[16*16];
            tmp1.store(out_ptr2 + x0);
            at::vec::transpose_mxn<float,16,16>(in_ptr1 + static_cast<int64_t>(x1), 16L, tmp2, 16);
            auto tmp3 = at::vec::Vectorized<float>::loadu(tmp2 + static_cast<int64_t>(16L*x1_inner), 16);
            tmp3.store(out_ptr1 + x0);"""
        self.assertEqual(kernel_source.made_of(source, ["in_ptr0", "in_ptr1"], ["out_ptr0", "out_ptr1", "out_ptr2"]),
                         {"out_ptr0": ["in_ptr0"], "out_ptr1": ["in_ptr1"], "out_ptr2": []})

    def test_of_triton(self):
        source = """
            tmp0 = tl.load(in_ptr0 + (x0), xmask)  # of in_ptr1
            tmp2 = _tmp2 + tl.load(in_ptr1 + (r1), rmask)
            _tmp2 = tl.where(rmask, tmp2, _tmp2)
            tl.store(out_ptr0 + (x0), tmp0, xmask)
            tl.store(out_ptr1 + (x0), _tmp2, xmask)"""
        self.assertEqual(kernel_source.made_of(source, ["in_ptr0", "in_ptr1"], ["out_ptr0", "out_ptr1"]),
                         {"out_ptr0": ["in_ptr0"], "out_ptr1": ["in_ptr1"]})


class DroppedViews(unittest.TestCase):
    def dropped(self, *lines):
        text = "async_compile = AsyncCompile()\n"
        text += "cpp_fused_sum_0 = async_compile.cpp_pybinding([], '''extern \"C\" void kernel(float* out_ptr0) {}''')\n"
        text += "def call(args):\n" + "".join("    %s\n" % line for line in lines)
        return [call.dropped for function in wrapper_source.read(text, ()) for call in function.calls]

    def test_a_view_whose_name_is_given_away_unused(self):
        view = "buf3 = reinterpret_tensor(buf13, (4, ), (1, ), 2048)  # alias"
        self.assertEqual(self.dropped(view, "cpp_fused_sum_0(workspace_0)", "buf3 = workspace_0.sum(dim=0)"), [("buf3", "buf13")])
        self.assertEqual(self.dropped(view, "cpp_fused_sum_0(buf3)", "buf3 = buf4; del buf4  # reuse"), [None])
        self.assertEqual(self.dropped(view, "cpp_fused_sum_0(buf5)", "buf3.copy_(buf5)"), [None])
        self.assertEqual(self.dropped(view, "cpp_fused_sum_0(buf5)", "del buf3"), [None])


if __name__ == "__main__":
    unittest.main()
