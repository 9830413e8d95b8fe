"""The runs, by name: MODEL-PRECISION-VARIANT[+FAULT], and the pairs of them that are compared."""
import dataclasses

from faults import FAULTS

PRECISIONS = ("f32", "bf16", "autocast")
VARIANTS = {
    "threads": "1 thread against 2",
    "blas": "oneDNN against MKL or ATen's own kernels",
    "simd": "AVX-512 against ATen's kernels for any CPU",
    "unfused": "fused attention, norm and GELU against their formulas",
    "split": "products cut into four along the summed dimension",
    "flip": "products summed backwards",
    "avx2": "AVX-512 against AVX2",
    "explicit": "fused attention against its formula",
    "fused": "AdamW by foreach against fused",
}
DESIGN = ("threads", "blas", "simd", "unfused", "split")
OTHERS = {"gpt": ("flip", "avx2", "explicit", "fused"), "conv": ("flip", "avx2", "fused"),
          "lstm": ("threads", "blas", "simd", "unfused", "split", "flip", "avx2", "fused")}
HELD_OUT = {"encoder": ("unfused", "threads"), "resnet": ("simd", "blas"), "gru": ("split", "avx2"), "tied": ("flip", "threads"),
            "unet": ("split", "blas")}
HELD_OUT_2 = {"vision": ("split", "unfused"), "recommender": ("threads", "flip"), "graph": ("flip", "simd"), "mixer": ("split", "blas"),
              "wave": ("blas", "avx2"), "denoiser": ("blas", "split")}
HELD_OUT_3 = {"stack": ("split", "simd"), "decoder": ("unfused", "flip"), "both": ("threads", "avx2"), "mixture": ("split", "blas"),
              "twins": ("flip", "simd"), "regions": ("blas", "split")}
HELD_OUT_4 = {"scan": ("split", "simd"), "outliers": ("split", "unfused"), "sharp": ("flip", "blas"), "deep": ("split", "blas"),
              "narrowing": ("split", "simd"), "pairs": ("flip", "blas")}
HELD_OUT_5 = {"translator": ("blas", "simd"), "projected": ("threads", "avx2"), "hyper": ("split", "flip"), "fourier": ("unfused", "simd"),
              "points": ("split", "blas"), "windows": ("unfused", "flip"), "sampled": ("split", "simd"), "fixed": ("explicit", "flip")}
HELD_OUT_6 = {"spaces": ("split", "simd"), "tuned": ("flip", "threads"), "scaled": ("blas", "split"), "experts": ("split", "avx2")}
BESIDE = ("plain", "split")


# Pairs that differ by more than rounding: under autocast an LSTM without oneDNN computes in f32, as does a GRU, cell by cell.
# PyTorch's own layer norm on a CPU sums its bias gradient in bf16: for 1,536 rows it differs by 38 % from the sum in f64.
NO_ROUNDING = {("lstm", "autocast", "blas"), ("gru", "autocast", "split"), ("windows", "bf16", "unfused"), ("windows", "autocast", "unfused")}


@dataclasses.dataclass(frozen=True)
class Case:
    """A run that is compared with the plain one of its model and precision."""
    kind: str                   # fault, or of rounding pairs: design, others, held_out
    model: str
    precision: str
    variant: str
    fault: str = ""

    @property
    def base(self):
        return f"{self.model}-{self.precision}-plain"

    @property
    def candidate(self):
        return f"{self.model}-{self.precision}-{self.variant}" + (f"+{self.fault}" if self.fault else "")


def rounding(kind, variants_of):
    return [Case(kind, model, precision, variant) for model, variants in variants_of.items() for precision in PRECISIONS
            for variant in variants if (model, precision, variant) not in NO_ROUNDING]


def planted():
    return [Case("fault", model, precision, variant, name) for name, fault in FAULTS.items() for model in fault.models.split()
            for precision in PRECISIONS for variant in BESIDE]


CASES = (*planted(), *rounding("design", {"gpt": DESIGN, "conv": DESIGN}), *rounding("others", OTHERS), *rounding("held_out", HELD_OUT),
         *rounding("held_out_2", HELD_OUT_2), *rounding("held_out_3", HELD_OUT_3),
         *rounding("held_out_4", HELD_OUT_4), *rounding("held_out_5", HELD_OUT_5),
         *rounding("held_out_6", HELD_OUT_6),
         Case("held_out", "gru", "autocast", "threads"))


# The runs of the short test: 28 together with the plain ones.
SAMPLE = frozenset((
    *(f"conv-f32-plain+{fault}" for fault in ("gelu", "detached")),
    *(f"conv-f32-split+{fault}" for fault in ("columns", "dropout", "smoothing", "lr")),
    *(f"conv-bf16-plain+{fault}" for fault in ("scaled", "reduction")), *(f"conv-autocast-plain+{fault}" for fault in ("columns", "data")),
    *(f"conv-{precision}-{variant}" for precision in PRECISIONS for variant in ("split", "blas")),
    *(f"gpt-bf16-plain+{fault}" for fault in ("rotary", "table", "beta2")),
    *(f"gpt-{precision}-split" for precision in ("f32", "bf16")), "gpt-f32-split+eps", "gpt-bf16-split+unscaled",
))
