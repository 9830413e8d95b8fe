"""Findings of level error that a suite's tests are known to cause: whether each is true of the test's program, and why."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Known:
    suite: str
    command: str   # check or findings
    kind: str      # id or kind of the finding
    place: str     # pattern of scope, op, kernel and slot, as the report of tools/suites names them
    true: bool
    reason: str


KNOWN = (
    Known("pytorch-nn", "check", "nan", "MultiheadAttention AddmmBackward0 needed:mat1", True,
          "test_multihead_attention compares two masks, and says itself that rows which are masked out completely are NaN"),
    Known("pytorch-autograd", "check", "nan", "loss", True, "test_power_function sums 0 to the power -1, and goes on with infinity"),
    Known("pytorch-optim", "check", "nan", "loss", True,
          "test_swa_utils has outputs of up to 8e22, and the sum of their squares is beyond f32"),
    Known("peft", "check", "nan", "PeftModel#*.base_model.model.lin0 output:0", True,
          "test_forward_float16 of DeLoRA: B is 0, and its scale of 15 / 8 / (norm of A * 1e-4) is beyond f16: infinity times 0"),
    Known("opacus", "check", "nan", "ModelWithLoss#*.criterion output:0", True,
          "grad_samples tests a batch of no rows: the mean over it is NaN"),
)
