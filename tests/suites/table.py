"""The suites: which package, of which version, where its tests are, and which of them are run.

A requirement names the version that is installed; what these packages depend on is pinned in pins.txt.
"""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Suite:
    tests: str                      # "wheel": installed with the package; "sdist": its source on the index; "debian": PyTorch's, of Debian's
    package: str                    # whose tests are run, with its version
    select: tuple                   # pytest's files, below site-packages for a wheel, else below the sources; options, each one word
    needs: tuple = ()               # further packages
    bare: tuple = ()                # of these, and of the package itself, those installed without what they depend on
    folder: str = "."               # below the sources: pytest's working folder
    env: tuple = ()                 # pairs
    limit_s: int = 1800             # for each of the two runs
    default: bool = False           # small: part of tools/test

    @property
    def version(self):
        return self.package.partition("==")[2]


DEBIAN_RELEASE = "trixie"
VISION = "torchvision==0.15.2"  # imported, of which nothing compiled is used: this one imports beside any PyTorch


def pytorch(*select, **options):
    return Suite("debian", "pytorch==2.6.0", ("--noconftest", *select), ("expecttest==0.3.0", "hypothesis==6.170.17", "scipy==1.17.1"), folder="test",
                 **options)


def skorch(*select, **options):
    return Suite("wheel", "skorch==1.4.0", tuple("skorch/tests/" + file for file in select), ("flaky==3.8.1",), **options)


def opacus(*select, **options):
    return Suite("wheel", "opacus==1.6.0", tuple("opacus/tests/" + file for file in select), ("hypothesis==6.170.17", "requests==2.34.2"), (VISION,),
                 **options)


SUITES = {
    "pytorch-parametrization": pytorch("nn/test_parametrization.py", "nn/test_load_state_dict.py", "nn/test_module_hooks.py", default=True,
                                       limit_s=300),
    "pytorch-nn": pytorch("nn", "test_stateless.py", "optim"),
    "pytorch-modules": pytorch("test_modules.py", "-kfloat32 and not gradgrad"),
    "pytorch-optim": pytorch("test_optim.py"),
    "pytorch-autograd": pytorch("test_autograd.py"),
    "pytorch-custom-ops": pytorch("test_custom_ops.py", "test_serialization.py", "dynamo/test_hooks.py"),
    "pytorch-multiprocessing": pytorch("test_multiprocessing.py", "test_multiprocessing_spawn.py"),
    "einops": Suite("wheel", "einops==0.8.2", ("einops/tests",), env=(("EINOPS_TEST_BACKENDS", "numpy,torch"),)),
    "skorch": skorch("callbacks", "test_classifier.py", "test_regressor.py", "test_dataset.py", "test_doctor.py", "test_scoring.py", "test_toy.py",
                     limit_s=300),
    "skorch-net": skorch("test_net.py", "test_helper.py", "test_history.py"),
    "opacus": opacus("grad_samples", "grad_sample_module_test.py", "grad_sample_hooks_test.py", "gradient_accumulation_test.py",
                     "batch_memory_manager_test.py", "per_sample_gradients_utils_test.py"),
    "opacus-engine": opacus("privacy_engine_test.py", "randomness_test.py", limit_s=3600),
    "gpytorch": Suite("sdist", "gpytorch==1.15.2", ("test/examples",)),
    "linear-operator": Suite("sdist", "linear-operator==0.6.1", ("test",)),
    "ignite": Suite("sdist", "pytorch-ignite==0.5.5", ("tests/ignite/engine", *("tests/ignite/handlers/test_%s.py" % name for name in (
        "checkpoint", "early_stopping", "ema_handler", "handlers", "lr_finder", "param_scheduler", "state_param_scheduler", "stores",
        "terminate_on_nan", "time_profilers", "timing"))),
                    ("pytest-order==1.5.0", "scikit-learn==1.9.1", "matplotlib==3.11.2", "dill==0.4.1")),
    "peft": Suite("sdist", "peft==0.21.2", ("--import-mode=importlib", "tests/test_custom_models.py", "-kLoraConfig and MLP and not Fsdp"),
                  ("parameterized==0.9.0", "datasets==5.2.0", "diffusers==0.42.1", "scipy==1.17.1")),
    "timm": Suite("sdist", "timm==1.0.31", ("tests/test_optim.py", "tests/test_layers.py", "-ksgd or adamw or lion or lamb or layers"),
                  ("expecttest==0.3.0", "huggingface-hub==2.4.0", "safetensors==0.8.0", "requests==2.34.2"), ("timm==1.0.31", VISION)),
    "accelerate": Suite("sdist", "accelerate==1.15.0", tuple("tests/test_%s.py" % name for name in (
        "accelerator", "hooks", "optimizer", "scheduler", "state_checkpointing", "data_loader", "grad_sync", "cpu", "utils", "modeling_utils",
        "kwargs_handlers")), ("parameterized==0.9.0", "scipy==1.17.1")),
    "backpack": Suite("sdist", "backpack-for-pytorch==1.7.1", ("test/extensions/firstorder", "--noconftest"),
                      ("einops==0.8.2", "unfoldnd==0.2.3", "requests==2.34.2", "pytorch-memlab==0.3.2", "scipy==1.17.1"),
                      ("backpack-for-pytorch==1.7.1", VISION), default=True, limit_s=300),
    "pytorch-optimizer": Suite("sdist", "pytorch-optimizer==4.1.0", tuple("tests/test_%s.py" % name for name in (
        "optimizers", "optimizer_variants", "wrapper_optimizers", "gradients")), bare=("pytorch-optimizer==4.1.0",), default=True, limit_s=300),
    "curvlinops": Suite("sdist", "curvlinops-for-pytorch==3.0.1", tuple("test/test_%s.py" % name for name in (
        "ggn", "hessian", "jacobian", "fisher", "gradient_moments")), ("scipy==1.17.1", "einops==0.8.2", "unfoldnd==0.2.3", "einconv==0.1.0",
                                                                       "linear-operator==0.6.1", "opt-einsum==3.4.0", "requests==2.34.2"),
                        ("curvlinops-for-pytorch==3.0.1", "backpack-for-pytorch==1.7.1", VISION)),
}


def default():
    return [name for name, suite in SUITES.items() if suite.default]
