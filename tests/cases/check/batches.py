"""Programs whose data are wrong: batches, labels, padding, scales."""
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, TensorDataset

from parts import STEPS, WIDTH, Classifier, Conv, Tagger, adamw, learn, load, pictures, sgd, vectors


def next_of_iter(faulty):
    """The loader begins anew in each step."""
    model = Conv()
    optimizer = adamw(model)
    loader = load(pictures(), shuffle=False)
    running = iter(loader)
    for _ in range(STEPS):
        learn(model, optimizer, *next(iter(loader) if faulty else running))


def seeded_each_step(faulty):
    """The seed is set in each step, and the batch is drawn after it."""
    model = Classifier(drop=0.1)
    optimizer = adamw(model)
    torch.manual_seed(7)
    for _ in range(STEPS):
        if faulty:
            torch.manual_seed(7)
        x = torch.randn(16, WIDTH)
        learn(model, optimizer, x, x[:, :6].argmax(1))


def sentences(count, seed, low=6, high=20):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(low, high, (count,), generator=generator).tolist()
    return [torch.randint(1, 40, (length,), generator=generator) for length in lengths]


def answers(batch, prompts):
    """Tokens and labels; the tokens of a prompt are no labels."""
    x, y = pad_sequence(batch, batch_first=True), pad_sequence(batch, batch_first=True, padding_value=-100)
    for row, prompt in zip(y, prompts):
        row[:prompt] = -100
    return x[:, :-1], y[:, 1:]


def tag(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-100, reduction="sum")
    (loss / (y != -100).sum().clamp(min=1)).backward()
    optimizer.step()


def all_ignored(faulty):
    """The mark where an answer begins is not found, so all of each row counts as prompt."""
    model = Tagger()
    optimizer = adamw(model)
    for batch in DataLoader(sentences(80, 3), batch_size=8, shuffle=True, collate_fn=list):
        tag(model, optimizer, *answers(batch, [99 if faulty else len(row) // 2 for row in batch]))


def cut_answers(faulty):
    """The prompts of one batch are longer than the limit of a row, so that the answers are cut off."""
    model = Tagger()
    optimizer = adamw(model)
    for step, batch in enumerate(DataLoader(sentences(80, 4, 14), batch_size=8, shuffle=True, collate_fn=list)):
        long = faulty and step == 6
        tag(model, optimizer, *answers([row[:12] if long else row for row in batch], [12 if long else 6] * 8))


def padded_to_limit(faulty):
    """Rows are padded to the length that a model can have, not to the longest of the batch."""
    def collate(batch):
        batch = pad_sequence(batch, batch_first=True)
        return F.pad(batch, (0, 64 - batch.shape[1])) if faulty else batch

    model = Tagger()
    optimizer = adamw(model)
    rows = sentences(80, 5, 16, 24)
    for batch in DataLoader(rows, batch_size=8, shuffle=True, collate_fn=collate):
        x, y = batch[:, :-1], batch[:, 1:].clone()
        y[y == 0] = -100
        tag(model, optimizer, x, y)


def factor_255(faulty):
    """The second part of the data is read without the division."""
    data = pictures()
    x = (data.tensors[0].clamp(-3, 3) + 3) / 6
    half = len(x) // 2
    parts = TensorDataset(x[:half], data.tensors[1][:half]), TensorDataset(x[half:], data.tensors[1][half:])
    model = Conv()
    optimizer = adamw(model)
    for number, part in enumerate(parts):
        for x, y in load(part):
            learn(model, optimizer, x * 255 if faulty and number == 1 else x, y)


def not_normalized(faulty):
    """After a resume the inputs are not normalized any more."""
    data = vectors()
    raw, labels = data.tensors[0] * 12 + 80, data.tensors[1]
    mean, std = raw.mean(0), raw.std(0)
    model = Classifier()
    optimizer = adamw(model)
    for step, (x, y) in enumerate(load(TensorDataset(raw, labels))):
        learn(model, optimizer, x if faulty and step >= 6 else (x - mean) / std, y)


def zero_distance(faulty):
    """The root of a distance: two equal rows of a batch have distance zero, whose gradient is not a number."""
    data = vectors()
    left, right = data.tensors[0], data.tensors[0].roll(1, 0).clone()
    right[16 * 6] = left[16 * 6]
    model = Classifier()
    optimizer = sgd(model, 0.01)
    for a, b in load(TensorDataset(left, right), shuffle=False):
        optimizer.zero_grad()
        squares = ((model(a) - model(b)) ** 2).sum(1)
        (1 - (squares if faulty else squares + 1e-6).sqrt()).relu().add(0.1 * squares).mean().backward()
        optimizer.step()

