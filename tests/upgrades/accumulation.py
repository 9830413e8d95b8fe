"""A Trainer with gradient accumulation over sequences of unequal length, labels of the padding ignored."""
import tempfile

import torch
import transformers

transformers.set_seed(0)
torch.set_num_threads(1)
config = transformers.LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                                  num_key_value_heads=4, max_position_embeddings=64)
model = transformers.LlamaForCausalLM(config)


class Sequences(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        ids, length = torch.randint(256, (48,), generator=generator), 4 + index % 4 * 12
        ignored = torch.arange(48) >= length
        return {"input_ids": ids, "attention_mask": (~ignored).long(), "labels": ids.masked_fill(ignored, -100)}


with tempfile.TemporaryDirectory() as folder:
    arguments = transformers.TrainingArguments(folder, max_steps=3, per_device_train_batch_size=2, gradient_accumulation_steps=4,
                                               use_cpu=True, save_strategy="no", report_to=[], disable_tqdm=True)
    transformers.Trainer(model, arguments, train_dataset=Sequences()).train()
