#pragma once
/// @file callback_table.h
/// The list of CUPTI callbacks that convtrace enables, each with the decoder of its parameters.
///
/// Source:   cupti_driver_cbid.h; `_ptsz` and `_ptds` variants are the per-thread default stream
///           variants of the same function and share its parameter layout.

#include <cupti.h>

#include <span>
#include <variant>

#include "cupti/calls/copy_decoder.h"
#include "cupti/calls/launch_decoder.h"
#include "cupti/calls/memory_decoder.h"
#include "cupti/calls/state_decoder.h"
#include "cupti/calls/sync_decoder.h"

namespace convtrace::cupti {

using LaunchDecoder = LaunchInfo (*)(const void* params) noexcept;
using MemoryDecoder = MemoryChange (*)(const void* params) noexcept;
using HandleDecoder = HandleChange (*)(const void* params) noexcept;
using CaptureDecoder = CaptureChange (*)(const void* params) noexcept;
using SyncDecoder = SyncChange (*)(const void* params) noexcept;
using TensorMapDecoder = TensorMapChange (*)(const void* params) noexcept;

/// A memory decoder that runs at the exit of a successful call: it reads what the call returned, or
/// reports what the call wrote.
struct ExitDecoder {
  MemoryDecoder decode;
};

/// A decoder that runs at the entry of a call that destroys an object: the driver may give the same
/// handle to another object before the call returns.
struct EndDecoder {
  SyncDecoder decode;
};

/// A decoder of a call that makes several changes at once.
template <typename Item>
struct BatchDecoder {
  size_t (*count)(const void* params) noexcept;
  Item (*decode)(const void* params, size_t index) noexcept;
};
using LaunchBatch = BatchDecoder<LaunchInfo>;
using MemoryBatch = BatchDecoder<MemoryChange>;

/// Enabled at the exit of the call only: from then on a context can be used.
struct ContextCall {};

/// Enabled at the exit of the call only: a context that the call ended is gone by then.
struct ContextEnd {};

/// From this call on, memory of a device may be written without a call of this process: another process
/// or a network card may have it, or the host writes to it.
struct SharingCall {};

struct CallbackEntry {
  CUpti_CallbackId cbid = 0;
  std::variant<ContextCall, ContextEnd, SharingCall, LaunchDecoder, LaunchBatch, ExitDecoder,
               MemoryDecoder, MemoryBatch, HandleDecoder, CaptureDecoder, SyncDecoder, EndDecoder,
               TensorMapDecoder>
      decoder;
  bool per_thread = false;
};

/// @return every driver callback that is enabled.
[[nodiscard]] std::span<const CallbackEntry> driver_callbacks() noexcept;

/// @return the entry of a driver callback, or null. O(1).
[[nodiscard]] const CallbackEntry* find_driver_callback(CUpti_CallbackId cbid) noexcept;

}  // namespace convtrace::cupti
