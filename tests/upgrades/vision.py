"""A small vision transformer with the root mean square norms of timm, and an optimizer of timm."""
import timm
import timm.layers
import timm.optim
import torch

import weights

torch.manual_seed(0)
torch.set_num_threads(1)
model = timm.create_model("vit_tiny_patch16_224", img_size=64, num_classes=10, norm_layer=timm.layers.RmsNorm)
weights.share(model)
optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
model.train()
for _ in range(3):
    pictures, labels = torch.randn(4, 3, 64, 64), torch.randint(10, (4,))
    loss = torch.nn.functional.cross_entropy(model(pictures), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
