"""Inputs of embeddings and losses in which one index stands for padding."""
import pickle
import unittest

from support import ObservedTest, torch
from fake_engine import engine

nn, functional = torch.nn, torch.nn.functional
_CROSS_ENTROPY = torch._C._nn.cross_entropy_loss  # as it is without an observer
_ASKED = "__name__", "__qualname__", "__module__", "__doc__"


class Padding(ObservedTest):
    def marked(self):
        return [(t.scope, t.call, t.slot, t.op, t.padding) for t in self.fake.of("tensor")
                if t.padding != engine.NO_PADDING]

    def test_indices_of_an_embedding_with_a_padding_index(self):
        model = nn.Sequential(nn.Embedding(5, 3, padding_idx=-1))
        model(torch.tensor([[1, 4]]))
        model[0](input=torch.tensor([[4, 4]]))
        bag = nn.ModuleDict({"bag": nn.EmbeddingBag(5, 3, padding_idx=0)})
        bag["bag"](torch.tensor([0, 1]), torch.tensor([0]))
        self.assertEqual(self.marked(), [
            ("0", 0, "input:0", None, (engine.EMBEDDING, 4)),
            ("0", 0, "input:input", None, (engine.EMBEDDING, 4)),
            ("EmbeddingBag", 0, "input:0", None, (engine.EMBEDDING, 0))])

    def test_an_embedding_without_one_is_a_module_like_others(self):
        model = nn.Sequential(nn.Embedding(5, 3))
        model.padding_idx = 3  # as models keep their configuration's
        model(torch.tensor([[1, 4]]))
        self.assertEqual(self.marked(), [])

    def test_labels_of_modules_and_functions(self):
        target = torch.tensor([1, 2])
        scores = torch.randn(2, 4)
        functional.cross_entropy(scores, target)
        functional.cross_entropy(scores, target)
        functional.nll_loss(scores, target, ignore_index=0)
        nn.CrossEntropyLoss(ignore_index=2)(scores, target)
        self.assertEqual(self.marked(), [
            ("", 0, "input:1", "aten::cross_entropy_loss", (engine.LABELS, -100)),
            ("", 1, "input:1", "aten::cross_entropy_loss", (engine.LABELS, -100)),
            ("", 2, "input:1", "aten::nll_loss_nd", (engine.LABELS, 0)),
            ("", 0, "input:1", "aten::cross_entropy_loss", (engine.LABELS, 2))])

    def test_class_probabilities_are_no_labels(self):
        functional.cross_entropy(torch.randn(2, 4), torch.rand(2, 4).softmax(1))
        self.assertEqual(self.marked(), [])

    def test_results_are_those_of_an_unobserved_call(self):
        scores, target = torch.randn(6, 4, requires_grad=True), torch.tensor([0, 1, 2, 3, -100, 1])
        observed = functional.cross_entropy(scores, target, label_smoothing=0.1)
        self.observer.remove()
        self.assertEqual(observed.item(),
                         functional.cross_entropy(scores, target, label_smoothing=0.1).item())
        self.assertIs(torch._C._nn.cross_entropy_loss, _CROSS_ENTROPY)

    def test_the_function_is_found_as_torchs_own(self):
        replaced = torch._C._nn.cross_entropy_loss
        self.assertIsNot(replaced, _CROSS_ENTROPY)
        self.assertEqual([getattr(replaced, name) for name in _ASKED], [getattr(_CROSS_ENTROPY, name) for name in _ASKED])
        self.assertIs(pickle.loads(pickle.dumps(replaced)), replaced)
        with self.assertRaisesRegex(TypeError, "must be Tensor, not int"):
            replaced(3)

    def test_a_traced_loss_is_torchs_own(self):
        class Model(nn.Module):
            def forward(self, scores, target):
                return functional.cross_entropy(scores, target)

        traced = torch.fx.symbolic_trace(Model())
        self.assertIn(functional.cross_entropy, [node.target for node in traced.graph.nodes])
        scores, target = torch.randn(2, 4), torch.tensor([0, 1])
        graphs = []
        compiled = torch.compile(Model(), fullgraph=True, backend=lambda graph, _: (
            graphs.append([node.target for node in graph.graph.nodes if node.op == "call_function"]),
            graph.forward)[1])
        self.assertEqual(float(compiled(scores, target)), float(Model()(scores, target)))
        self.assertEqual(graphs, [[functional.cross_entropy]])


if __name__ == "__main__":
    unittest.main()
