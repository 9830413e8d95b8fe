"""The faults: the change that each makes in a run, and the place that a report should name."""
import dataclasses
import typing

PLACES = {
    "gpt": {"block": "blocks.3", "attention": "blocks.3.attn", "norm": "blocks.3.ln2", "middle": "blocks.3.fc1", "act": "blocks.3.act",
            "drop": "blocks.3.drop", "square": "blocks.3.attn.out"},
    "conv": {"block": "stages.2", "norm": "stages.2.norm", "middle": "stages.2.conv", "act": "stages.2.act", "drop": "drop",
             "square": "stages.2.conv"},
    "lstm": {"block": "layers.1", "norm": "layers.1.norm", "middle": "fc", "act": "act", "drop": "layers.1.drop",
             "square": "layers.1.lstm", "recurrent": "layers.1.lstm"},
}


@dataclasses.dataclass(frozen=True)
class Fault:
    what: str
    phases: str                 # in which it may be told, the first of them is meant
    place: str | None           # a key of PLACES or a module; None: any module
    plant: typing.Callable      # of (training, the module at the place)
    since: int = 0              # the step in front of which it is planted
    seen: int | None = None     # the step in which values can show it, if that is a later one
    models: str = "gpt conv lstm"
    fact: str | None = None     # the name of the fact that tells it

    @property
    def step(self):
        return self.since if self.seen is None else self.seen

    def module(self, model):
        return PLACES[model].get(self.place, self.place)


def put(**attributes):
    """@return a fault that sets attributes of the module at its place."""
    def plant(training, module):
        for name, value in attributes.items():
            setattr(module, name, value)

    return plant


def train_with(**attributes):
    return lambda training, module: put(**attributes)(None, training)


def lose_with(**attributes):
    return lambda training, module: put(**attributes)(None, training.criterion)


def optimize_with(change):
    def plant(training, module):
        for group in training.optimizer.param_groups:
            change(group)

    return plant


def given(change):
    """@return a fault that changes the module's input."""
    return lambda training, module: module.register_forward_pre_hook(lambda module, x: (change(x[0]),))


def made(change):
    """@return a fault that changes the module's output."""
    return lambda training, module: module.register_forward_hook(lambda module, x, y: change(y))


def transpose_weight(training, module):
    weight = getattr(module, "weight_hh_l0", None)
    weight = module.weight.data if weight is None else weight.data[:weight.shape[1]]
    weight.copy_(weight.transpose(0, 1).clone())


def swap_gates(training, module):
    """Reorders an LSTM's gates from input, forget, cell, output to another library's input, forget, output, cell."""
    for parameter in module.parameters():
        i, f, g, o = parameter.data.clone().chunk(4)
        for piece, other in zip(parameter.data.chunk(4), (i, f, o, g)):
            piece.copy_(other)


def flip_bit(training, module):
    """Flips a bit in the exponent of one weight."""
    import torch
    narrow = module.weight.dtype == torch.bfloat16
    module.weight.data.view(torch.int16 if narrow else torch.int32).view(-1)[1000] ^= 1 << (10 if narrow else 26)


def without_decay(group):
    group["weight_decay"] = 0.0


FAULTS = {
    "rotary": Fault("rotary tables 15 % off", "forward", "attention", lambda t, m: m.set_tables(48, 1.15), models="gpt"),
    "rotary_row": Fault("rotary tables shifted by a row", "forward", "attention",
                        lambda t, m: put(cos=m.cos.roll(1, 0), sin=m.sin.roll(1, 0))(t, m), models="gpt"),
    "table": Fault("position table shifted by a row", "forward", "position", put(_first_row=1), models="gpt"),
    "transposed": Fault("a weight transposed", "forward", "square", transpose_weight),
    "gates": Fault("gates of an LSTM in another order", "forward", "recurrent", swap_gates, models="lstm"),
    "swapped": Fault("queries and keys exchanged", "forward", "attention", put(_swapped=True), 3, models="gpt"),
    "operand": Fault("an operand transposed", "forward", "middle", given(lambda x: x.transpose(2, 3)), 3, models="conv"),
    "reversed": Fault("a sequence read backwards", "forward", "recurrent", given(lambda x: x.flip(1)), 3, models="lstm"),
    "columns": Fault("columns shifted by one", "forward", "middle", made(lambda y: y.roll(1, -1)), 3),
    "gelu": Fault("GELU by tanh for erf", "forward", "act", put(approximate="tanh"), fact="approximate"),
    "dropout": Fault("dropout 0.12 for 0.10", "forward", "drop", put(p=0.12), fact="p"),
    "unscaled": Fault("attention without its scale", "forward", "attention", put(_scale=1.0), models="gpt"),
    "unmasked": Fault("attention without its mask", "forward", "attention", put(_mask_offset=None), models="gpt"),
    "mask_row": Fault("a mask that is off by one", "forward", "attention", put(_mask_offset=1), 3, models="gpt"),
    "eps": Fault("epsilon of a norm 1e-2 for 1e-5", "forward", "norm", put(eps=1e-2), fact="eps"),
    "eps3": Fault("epsilon of a norm from step 3", "forward", "norm", put(eps=1e-2), 3),
    "momentum": Fault("momentum of a batch norm 0.01 for 0.1", "forward", "norm", put(momentum=0.01), models="conv", fact="momentum"),
    "momentum3": Fault("momentum of a batch norm 0.01 for 0.1 from step 3", "forward", "norm", put(momentum=0.01), 3, models="conv"),
    "frozen": Fault("a batch norm in evaluation mode", "forward", "norm", lambda t, m: m.eval(), 3, models="conv"),
    "bit": Fault("a bit of a weight flipped", "forward", "middle", flip_bit, 3),
    "scaled": Fault("an output 3 % larger", "forward", "middle", made(lambda y: y * 1.03), 3),
    "smoothing": Fault("label smoothing 0.1 for 0", "loss", None, lose_with(label_smoothing=0.1), fact="label_smoothing"),
    "reduction": Fault("the loss a sum for a mean", "loss", None, lose_with(reduction="sum"), fact="reduction"),
    "detached": Fault("a branch detached", "backward", "block", put(_detached=True), 3),
    "stale": Fault("gradients not set to zero", "backward", None, train_with(stale=True), 3),
    "unclipped": Fault("gradient clipping off", "backward optimizer", None, train_with(clip=None), 3),
    "lr": Fault("learning rate + 10 %", "optimizer", None, optimize_with(lambda g: g.update(lr=1.1e-3)), fact="lr"),
    "lr3": Fault("learning rate + 10 % from step 3", "optimizer", None, optimize_with(lambda g: g.update(lr=1.1e-3)), 3, fact="lr"),
    "beta2": Fault("beta2 0.999 for 0.95", "optimizer", None, optimize_with(lambda g: g.update(betas=(0.9, 0.999))), seen=1, fact="betas"),
    "decay": Fault("no weight decay", "optimizer", None, optimize_with(without_decay), fact="weight_decay"),
    "data": Fault("inputs in another order", "data", "", train_with(rolled=True), 3),
}
