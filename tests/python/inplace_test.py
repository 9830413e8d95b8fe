"""Ops that write memory that is still needed are found in one run, at the op that wrote; ops that only look alike are
not reported. Needs the built libraries and programs (CONVTRACE_BUILD)."""
import unittest

from preload_test import ProgramTest

# Case of the programs below -> (level, kind, op, slot) of one of its findings: the one that says where.
TOLD = {
    "wrong_saved_of_tanh": ("error", "input-mutated", "SquareBackward", "saved:0"),
    "wrong_saved_of_product": ("error", "input-mutated", "SquareBackward", "saved:0"),
    "wrong_saved_of_exp": ("error", "overwritten", "SquareBackward", "saved_shared:0"),
    "wrong_gradient_counted": ("error", "input-mutated", "TenthBackward", "grad_output:0"),
    "wrong_gradient_raw": ("error", "input-mutated", "TenthBackward", "grad_output:0"),
    "wrong_gradient_alone": ("warning", "input-mutated", "TenthBackward", "grad_output:0"),
    "wrong_buffer_saved": ("error", "overwritten", "GateBackward", "saved:1"),
    "wrong_buffer_of_ctx": ("warning", "overwritten", "GateBackward", "ctx:gate"),
    "wrong_statistics_of_ctx": ("warning", "overwritten", "ScaledBackward", "ctx:scale"),
    "wrong_weight_written": ("warning", "input-mutated", "LinearBackward", "saved:1"),
    "wrong_input_written": ("warning", "input-mutated", "Centre", "input:0"),
    "wrong_library_gradient": ("error", "input-mutated", "inplace_tests::squareBackward", "saved:0"),
    "wrong_between_modules": ("error", "overwritten", "TanhBackward0", "needed:result"),
    "wrong_weight_between": ("error", "overwritten", "WeightedBackward", "saved:1"),
    "wrong_batch_refilled": ("warning", "overwritten", "WeightedBackward", "saved_leaf:0"),
    "wrong_array_refilled": ("error", "overwritten", "AddmmBackward0", "needed:mat1"),
    "wrong_input_of_linear": ("error", "overwritten", "AddmmBackward0", "needed:mat1"),
    "wrong_result_of_tanh": ("error", "overwritten", "TanhBackward0", "needed:result"),
    "wrong_in_a_later_step": ("error", "overwritten", "AddmmBackward0", "needed:mat1"),
    "wrong_columns_of_a_product": ("error", "overwritten", "MmBackward0", "needed:self"),
    "wrong_state_of_a_cell": ("warning", "overwritten", "ScaledBackward", "saved_buffer:0"),
    "wrong_buffer_replaced": ("warning", "overwritten", "ReplacedBackward", "ctx:state"),
    "wrong_buffer_multiplied": ("warning", "input-mutated", "WrittenBackward", "saved_buffer:0"),
    "wrong_buffer_written": ("info", "input-mutated", "WrittenBackward", "saved_buffer:0"),
    "wrong_hook_of_an_op": ("error", "overwritten", None, "output:0"),
    "wrong_data_behind_a_layer": ("error", "overwritten", "AddmmBackward0", "needed:mat1"),
    "wrong_data_behind_a_product": ("error", "overwritten", "MmBackward0", "needed:self"),
    "wrong_hook_of_a_gradient": ("error", "overwritten", "ExpBackward", "grad_output:0"),
    "wrong_hook_of_a_layer": ("warning", "overwritten", "AddmmBackward0", "grad_output_hooked:0"),
    "wrong_hook_past_the_count": ("warning", "overwritten", "AddmmBackward0", "grad_output_hooked:0"),
    "wrong_hooks_of_both_layers": ("warning", "overwritten", "AddmmBackward0", "grad_output_hooked:0"),
    "wrong_state_of_an_object": ("warning", "overwritten", "MaskBackward", "state:Kept.mask"),
    "wrong_state_of_a_kernel": ("warning", "overwritten", "WrittenBackward", "state:Kept.mask"),
    "wrong_state_on_a_module": ("warning", "overwritten", "OwnedMaskBackward", "state:owner.mask"),
    "wrong_scores_of_a_loss": ("error", "overwritten", "MseLossBackward0", "needed:self"),
    "wrong_scores_of_logits": ("error", "overwritten", "BinaryCrossEntropyWithLogitsBackward0", "needed:self"),
    "wrong_scores_of_elements": ("error", "overwritten", "MseLossBackward0", "needed:self"),
    "wrong_scores_of_huber": ("error", "overwritten", "HuberLossBackward0", "needed:self"),
    "wrong_weight_of_a_layer": ("info", "overwritten", "AddmmBackward0", "needed:mat2"),
    "wrong_weight_of_a_convolution": ("info", "overwritten", "ConvolutionBackward0", "needed:weight"),
    "wrong_weight_of_a_function": ("info", "overwritten", "MmBackward0", "needed:mat2"),
    "wrong_weight_between_calls": ("warning", "overwritten", "MmBackward0", "needed:mat2"),
    "wrong_hook_that_sorts": ("error", "overwritten", None, "output:0"),
    "wrong_hook_that_rounds": ("error", "overwritten", None, "output:0"),
    "wrong_hook_with_arguments": ("error", "overwritten", None, "output:0"),
    "wrong_ring_of_packed": ("error", "overwritten", "AddmmBackward0", "packed:mat1"),
    "wrong_ring_of_pairs": ("error", "overwritten", "AddmmBackward0", "packed:mat1"),
    "wrong_buffer_of_packed": ("error", "overwritten", "SigmoidBackward0", "packed:result"),
    "wrong_block_of_an_array": ("warning", "overwritten", "SigmoidBackward", "ctx:kept"),
    "wrong_block_in_a_list": ("warning", "overwritten", "SigmoidBackward", "ctx:kept.0"),
    "wrong_block_of_bytes": ("warning", "overwritten", "SigmoidBackward", "ctx:kept"),
    "wrong_block_across": ("warning", "overwritten", "SigmoidBackward", "ctx:kept"),
    "wrong_part_behind_a_layer": ("error", "overwritten", "AddmmBackward0", "needed:mat1"),
    "wrong_part_of_a_gradient": ("error", "input-mutated", "TenthBackward", "grad_output:0"),
    "wrong_part_of_a_gradient_alone": ("warning", "input-mutated", "TenthBackward", "grad_output:0"),
    "wrong_dictionary_of_ctx": ("warning", "overwritten", "MaskBackward", "ctx:kept.mask"),
    "wrong_object_of_ctx": ("warning", "overwritten", "MaskBackward", "ctx:kept.mask"),
    "wrong_slots_of_ctx": ("warning", "overwritten", "MaskBackward", "ctx:kept.mask"),
    "wrong_closure_of_a_function": ("warning", "overwritten", "GatedBackward", "state:gate"),
    "wrong_global_of_a_function": ("warning", "overwritten", "MaskedBackward", "state:scratch"),
    "wrong_out_of_a_function": ("warning", "overwritten", "OutBackward", "state:weights"),
    "wrong_workspace_of_an_object": ("warning", "overwritten", "SpacedBackward", "state:space.mask"),
    "wrong_second_backward": ("error", "overwritten", "SquareBackward", "grad_input:0"),
}


class Kept(ProgramTest):
    shared = True
    PROGRAMS = "needed_ops.py", "needed_state.py", "needed_calls.py", "needed_between.py"
    WARNED = "needed_around.py",

    def findings_of(self, which, expect, programs=PROGRAMS):
        found = []
        for program in programs:
            before = set(self.traces())
            done = self.run_program(program, which, "cpu")
            self.assertEqual(done.returncode, 0, done.stderr)
            trace, = set(self.traces()) - before
            found += self.records(trace, "findings", expect)
        return found

    def test_who_writes_what_is_needed_is_told(self):
        found = {}
        for one in self.findings_of("wrong", 4) + self.findings_of("wrong", 0, self.WARNED):
            found.setdefault(one["scope"].partition(".")[0], []).append(one)
        self.assertEqual(set(found), set(TOLD))
        for case, expected in TOLD.items():
            said = {(one["level"], one["kind"], one["op"], one["slot"]) for one in found[case]}
            self.assertIn(expected, said, case)
            self.assertEqual(any(level == "error" for level, *_ in said), expected[0] == "error", case)
        self.check_words({case: " ".join(one["message"] for one in found[case]) for case in found})

    def check_words(self, said):
        self.assertRegex(said["wrong_saved_of_exp"],
                         r"saved:0 of op ExpBackward in .*is not what it was as saved:0 of op Exp in .*"
                         r"What op SquareBackward in .* left of its saved:0 is what lies there now")
        self.assertIn("only hooks of that module ran in between", said["wrong_hook_that_sorts"])
        self.assertIn("one of them writes in place a gradient", said["wrong_hook_of_a_layer"])
        self.assertIn("others held that memory", said["wrong_saved_of_tanh"])
        self.assertNotIn("others held that memory", said["wrong_gradient_alone"])
        self.assertIn("No op that is recorded gave these bytes", said["wrong_batch_refilled"])
        self.assertIn("If the backward does not read it", said["wrong_buffer_of_ctx"])
        self.assertIn("the backward of this one gets that of another", said["wrong_closure_of_a_function"])

    def test_programs_that_look_alike_are_not_accused(self):
        self.assertEqual(self.findings_of("right", 0, self.PROGRAMS + self.WARNED), [])

    def test_averages_in_buffers_and_what_is_set_between_are_hints(self):
        found = self.findings_of("alike", 0, ("needed_state.py", *self.WARNED))
        self.assertEqual({(one["level"], one["kind"], one["op"], one["slot"]) for one in found}, {
            ("info", "input-mutated", "WrittenBackward", "saved_buffer:0"),
            ("info", "overwritten", "NearestBackward", "saved_buffer:1"),
            ("info", "overwritten", "GatedBackward", "state:gate")})


if __name__ == "__main__":
    unittest.main()
