"""A transformer of PyTorch's own layers under bf16 autocast."""
import torch
from torch import nn

import weights

torch.manual_seed(0)
torch.set_num_threads(1)
layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
model = nn.Sequential(nn.Embedding(256, 64), nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), nn.Linear(64, 256))
weights.share(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    ids, labels = torch.randint(256, (4, 48)), torch.randint(256, (4 * 48,))
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
