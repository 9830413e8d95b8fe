"""A Gemma of random weights in f32."""
import torch
import transformers

import weights

torch.manual_seed(0)
torch.set_num_threads(1)
config = transformers.GemmaConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                                  num_key_value_heads=1, head_dim=16, max_position_embeddings=64)
model = transformers.GemmaForCausalLM(config)
weights.share(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    ids = torch.randint(256, (4, 48))
    loss = model(input_ids=ids, labels=ids).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
