"""Training steps of PyTorch programs of many kinds; the digest covers the losses and the last parameters."""
import atexit
import contextlib
import os

from common import arguments, deterministic, digest, finish, need, need_gpu, need_triton


class Scene:
    """A model, its data and its optimizer on one device."""

    def __init__(self, torch, device, model, batch, learning_rate=1e-3):
        self.torch, self.device = torch, device
        self.model = model.to(device)
        self.batch = batch
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=learning_rate)

    def step(self):
        loss = self.batch(self.model)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return [loss]

    def results(self):
        return [p for p in self.model.parameters()]


def gpt_model(torch, width=128, layers=2, words=256):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = self.qkv(self.ln_1(x)).view(b, t, 3, width // 64, 64).unbind(2)
            y = nn.functional.scaled_dot_product_attention(
                q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(b, t, width))
            return x + self.mlp(self.ln_2(x))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(words, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.head = nn.Linear(width, words)

        def forward(self, ids):
            return self.head(self.blocks(self.tokens(ids)))

    return Gpt()


def token_batch(torch, device, words=256, count=4, time=64):
    ids = torch.randint(words, (count, time + 1), device=device)

    def batch(model):
        output = model(ids[:, :-1])
        return torch.nn.functional.cross_entropy(output.flatten(0, 1).float(), ids[:, 1:].flatten())

    return batch


def gpt(torch, device):
    return Scene(torch, device, gpt_model(torch), token_batch(torch, device))


def gpt_faulty(torch, device):
    """The same, but somebody writes to a bias between the first step and the second."""
    scene = gpt(torch, device)
    step = scene.step

    def faulty():
        losses = step()
        with torch.no_grad():
            scene.model.blocks[1].mlp[0].bias += 0.5
        return losses

    scene.step = faulty
    return scene


def amp(torch, device):
    """Autocast with a GradScaler: float16 on a GPU, bfloat16 on the CPU."""
    scene = gpt(torch, device)
    dtype = torch.float16 if device == "cuda" else torch.bfloat16
    scaler = torch.amp.GradScaler(device)

    def step():
        with torch.autocast(device, dtype):
            loss = scene.batch(scene.model)
        scaler.scale(loss).backward()
        scaler.step(scene.optimizer)
        scaler.update()
        scene.optimizer.zero_grad()
        return [loss]

    scene.step = step
    return scene


def compiled(torch, device, **options):
    if device == "cuda":
        need_triton(device)
    scene = gpt(torch, device)
    model = torch.compile(scene.model, fullgraph=True, **options)
    batch = scene.batch
    scene.batch = lambda _: batch(model)
    return scene


def graph_trees(torch, device):
    """Compiled, and run as CUDA graphs that share memory."""
    need_gpu(device)
    scene = compiled(torch, device, mode="reduce-overhead")
    eager = scene.step

    def step():
        torch.compiler.cudagraph_mark_step_begin()
        return [loss.clone() for loss in eager()]

    scene.step = step
    return scene


def captured(torch, scene):
    """The whole training step as a CUDA graph that is replayed."""
    scene.optimizer = torch.optim.AdamW(scene.model.parameters(), lr=1e-3, capturable=True)
    eager = scene.step
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            eager()
    torch.cuda.current_stream().wait_stream(stream)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        loss, = eager()
    scene.step = lambda: (recorded.replay(), [loss.clone()])[1]
    return scene


def graph(torch, device):
    need_gpu(device)
    return captured(torch, gpt(torch, device))


def max_autotuned(torch, device):
    """Inductor tries templates and configurations out."""
    need_gpu(device)
    return compiled(torch, device, mode="max-autotune-no-cudagraphs")


def cnn_model(torch, stages=2, width=16, pixels=16):
    """Convolutions with BatchNorm and ReLU in place, a residual one in each stage."""
    nn = torch.nn

    class Stage(nn.Module):
        def __init__(self, before, after):
            super().__init__()
            self.first, self.norm = nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after)
            self.second, self.relu = nn.Conv2d(after, after, 3, padding=1), nn.ReLU(inplace=True)

        def forward(self, x):
            x = self.relu(self.norm(self.first(x)))
            return nn.functional.max_pool2d(self.relu(x + self.second(x)), 2)

    widths = [3] + [width << i for i in range(stages)]
    return nn.Sequential(*(Stage(*pair) for pair in zip(widths, widths[1:])), nn.Flatten(),
                         nn.Linear(widths[-1] * (pixels >> stages) ** 2, 10))


def cnn(torch, device):
    x, y = torch.randn(8, 3, 16, 16, device=device), torch.randint(10, (8,), device=device)
    return Scene(torch, device, cnn_model(torch), lambda m: torch.nn.functional.cross_entropy(m(x), y))


def resnet(torch, device):
    torchvision = need("torchvision")
    x, y = torch.randn(4, 3, 64, 64, device=device), torch.randint(10, (4,), device=device)
    return Scene(torch, device, torchvision.models.resnet18(num_classes=10),
                 lambda m: torch.nn.functional.cross_entropy(m(x), y))


def transformers(torch, device):
    library = need("transformers")
    config = library.GPT2Config(n_layer=2, n_head=2, n_embd=128, vocab_size=256, n_positions=64, resid_pdrop=0.1)
    ids = torch.randint(256, (2, 64), device=device)
    return Scene(torch, device, library.GPT2LMHeadModel(config), lambda m: m(input_ids=ids, labels=ids).loss)


def llama(torch, device):
    library = need("transformers")
    config = library.LlamaConfig(num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, hidden_size=128,
                                 intermediate_size=256, vocab_size=256, max_position_embeddings=64)
    ids = torch.randint(256, (2, 64), device=device)
    return Scene(torch, device, library.LlamaForCausalLM(config), lambda m: m(input_ids=ids, labels=ids).loss)


def attention(torch, device):
    """Attention by each of PyTorch's ways, as far as this device has them."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    ways = [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]
    if device == "cuda":
        ways.append(SDPBackend.EFFICIENT_ATTENTION)
    dtype = torch.float16 if device == "cuda" else torch.float32
    layer = torch.nn.Linear(64, 3 * 64)
    x = torch.randn(2, 4, 128, 64, device=device)

    def batch(model):
        q, k, v = model(x).to(dtype).chunk(3, dim=-1)
        total = 0
        for way in ways:
            with sdpa_kernel(way):
                total = total + torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).float().square().mean()
        return total

    return Scene(torch, device, layer, batch)


def lstm(torch, device):
    class Lstm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.head = torch.nn.LSTM(32, 64, num_layers=2, batch_first=True), torch.nn.Linear(64, 1)

        def forward(self, x):
            return self.head(self.lstm(x)[0][:, -1])

    x = torch.randn(8, 16, 32, device=device)
    return Scene(torch, device, Lstm(), lambda m: m(x).square().mean())


def checkpointed(torch, device):
    """Activations that are computed again on the way back."""
    from torch.utils.checkpoint import checkpoint

    scene = gpt(torch, device)
    for block in scene.model.blocks:
        forward = block.forward
        block.forward = lambda x, forward=forward: checkpoint(forward, x, use_reentrant=False)
    return scene


def distributed(torch, device):
    """Data-parallel over NCCL (on the CPU, gloo) in a world of one, gradients as views of buckets."""
    # There may be no network: one rank needs none.
    for backend in ("NCCL", "GLOO"):
        os.environ.setdefault(backend + "_SOCKET_IFNAME", "lo")
    store = os.path.join(os.getcwd(), "store-%d" % os.getpid())
    torch.distributed.init_process_group("nccl" if device == "cuda" else "gloo", init_method="file://" + store,
                                         rank=0, world_size=1)
    atexit.register(torch.distributed.destroy_process_group)
    scene = gpt(torch, device)
    wrapped = torch.nn.parallel.DistributedDataParallel(scene.model, gradient_as_bucket_view=True)
    batch = scene.batch
    scene.batch = lambda _: batch(wrapped)
    return scene


def accumulated(torch, device):
    """Three batches a step."""
    scene = gpt(torch, device)

    def step():
        losses = []
        for _ in range(3):
            losses.append(scene.batch(scene.model) / 3)
            losses[-1].backward()
        scene.optimizer.step()
        scene.optimizer.zero_grad()
        return losses

    scene.step = step
    return scene


def gan(torch, device):
    """Two models and two optimizers in turns."""
    nn = torch.nn
    maker = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16)).to(device)
    judge = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1)).to(device)
    scene = Scene(torch, device, nn.ModuleDict({"maker": maker, "judge": judge}), None)
    optimizers = [torch.optim.Adam(model.parameters(), lr=1e-3) for model in (judge, maker)]
    real, noise = torch.randn(32, 16, device=device), torch.randn(32, 8, device=device)
    score = nn.functional.softplus

    def step():
        made = maker(noise)
        losses = [(score(-judge(real)) + score(judge(made.detach()))).mean(), None]
        optimizers[0].zero_grad()
        losses[0].backward()
        optimizers[0].step()
        losses[1] = score(-judge(made)).mean()
        optimizers[1].zero_grad()
        losses[1].backward()
        optimizers[1].step()
        return losses

    scene.step = step
    return scene


def inference(torch, device):
    """No gradient, no optimizer."""
    scene = gpt(torch, device)
    scene.model.eval()

    def step():
        with torch.inference_mode():
            return [scene.batch(scene.model)]

    scene.step = step
    return scene


def triton_op(torch, device, op="scaled_relu", arguments=(1.5,)):
    need_triton(device)
    import triton_op as kernels

    nn = torch.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(64, 256), nn.Linear(256, 1)

        def forward(self, x):
            return self.last(getattr(kernels, op)(self.first(x), *arguments))

    x = torch.randn(128, 64, device=device)
    return Scene(torch, device, Model(), lambda m: m(x).square().mean())


def tuned(torch, device):
    """The kernel is tried out in several configurations, which all compute the same."""
    return triton_op(torch, device, "shifted", ())


def extension(torch, device):
    """An op in CUDA C++, compiled here, once for all runs of a check."""
    need_gpu(device)
    from extension import load

    op = load(torch, os.getcwd())
    layer = torch.nn.Linear(64, 64)
    x = torch.randn(128, 64, device=device)
    return Scene(torch, device, layer, lambda m: op(m(x)).mean())


MODELS = {one.__name__: one for one in (
    gpt, gpt_faulty, amp, attention, accumulated, gan, inference, lstm, checkpointed, distributed, compiled, graph, graph_trees, cnn, resnet,
    transformers, llama, triton_op, tuned, max_autotuned, extension)}
WITH_POOLING = ("cnn", "resnet")  # whose gradient has no algorithm that PyTorch calls deterministic on every version


def profiler(torch, device):
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    return torch.profiler.profile(activities=kinds)


def main():
    args = arguments(__doc__, model=sorted(MODELS))
    torch = deterministic(strict=args.model not in WITH_POOLING)
    scene = MODELS[args.model](torch, args.device)
    losses = []
    with profiler(torch, args.device) if args.profile else contextlib.nullcontext() as profile:
        for _ in range(args.steps):
            losses += [loss.detach() for loss in scene.step()]
    launches = {"cudaLaunchKernel", "cudaLaunchKernelExC"}  # the runtime's: convtrace's own go to the driver
    kernels = sum(e.count for e in profile.key_averages() if e.key in launches) if args.profile else None
    ended = digest(losses + scene.results())  # waits for the device, so an error that came late is raised here
    free = torch.cuda.mem_get_info()[0] if args.device == "cuda" else 0
    finish(args.out, digest=ended, losses=[float(x) for x in losses], profiled_kernels=kernels, free_bytes=free)


if __name__ == "__main__":
    main()
