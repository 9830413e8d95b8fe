#pragma once
/// @file layouts.h
/// Parameters of many kinds, for the kernels of layouts.cu and for the host compiler, which must
/// give them the same layout.

struct Tensors {
  unsigned count;
  float* data[2];
};

struct alignas(64) TensorMap {
  unsigned long long words[16];
};

struct Large {
  char bytes[6000];  // more than the 4 KiB that older architectures take
};
