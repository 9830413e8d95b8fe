"""A BERT of random weights with padding, as people fine-tune for classification."""
import torch
import transformers

import weights

torch.manual_seed(0)
torch.set_num_threads(1)
config = transformers.BertConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                                 max_position_embeddings=64)
model = transformers.BertForSequenceClassification(config)
weights.share(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model.train()
for _ in range(3):
    ids, labels = torch.randint(256, (4, 48)), torch.randint(2, (4,))
    mask = (torch.arange(48) < torch.tensor([[48], [40], [24], [12]])).long()
    loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
