#pragma once
/// @file callback_text.h
/// What a row of the callback table is decoded to, in one line.

#include <sstream>
#include <string>
#include <type_traits>

#include "cupti/calls/callback_table.h"

namespace convtrace::cupti {

inline std::string text(const LaunchInfo& launch) {
  std::ostringstream out;
  out << std::hex << "launch f" << reinterpret_cast<uintptr_t>(launch.function) << " grid";
  for (const uint32_t n : launch.grid) out << ' ' << n;
  out << " block";
  for (const uint32_t n : launch.block) out << ' ' << n;
  out << " shared " << launch.shared_bytes << " stream " << launch.stream;
  if (launch.params != nullptr) out << " params " << launch.params;
  if (launch.extra != nullptr) out << " extra " << launch.extra;
  return out.str();
}

inline std::string text(const MemoryChange& change) {
  constexpr const char* kKinds[] = {"alloc",   "free",    "unmap",  "copy",    "set",
                                    "discard", "create",  "retain", "release", "alias",
                                    "nothing", "to-host", "wait"};
  std::ostringstream out;
  out << std::hex << kKinds[static_cast<size_t>(change.kind)];
  if (change.kind == MemoryChange::Kind::kNothing)
    return out.str() + (change.may_wait ? " waits" : "");
  out << ' ' << format::to_string(change.memory) << ' ' << change.address << '+' << change.bytes;
  if (change.source != 0) out << " source " << change.source;
  if (change.stream != nullptr) out << " stream " << change.stream;
  if (change.handle != 0) out << " handle " << change.handle;
  if (change.device) {
    const bool host = change.device->type == format::Device::Type::kCpu;
    out << (host ? " cpu" : " cuda:") << (host ? "" : std::to_string(change.device->index));
  }
  if (change.may_wait) out << " waits";
  return out.str();
}

inline std::string text(const HandleChange& change) {
  constexpr const char* kKinds[] = {"module", "function", "kernel"};
  std::ostringstream out;
  out << kKinds[static_cast<size_t>(change.kind)] << " of " << change.owner;
  if (change.handles == nullptr) return out.str() + " gone";
  out << ' ' << change.handles << " x" << change.count;
  return out.str();
}

inline std::string text(const CaptureChange& change) {
  std::ostringstream out;
  out << (change.begins ? "begin " : "end ") << change.stream;
  return out.str();
}

inline std::string text(const SyncChange& change) {
  std::ostringstream out;
  out << format::to_string(change.kind);
  if (change.stream != nullptr) out << " stream " << change.stream;
  if (change.event != nullptr) out << " event " << change.event;
  if (change.flags != 0) out << " flags " << change.flags;
  if (change.context != nullptr) out << " context " << change.context;
  return out.str();
}

inline std::string text(const TensorMapChange& change) {
  std::ostringstream out;
  out << std::hex << "map " << change.map << " is " << change.address;
  return out.str();
}

template <typename Item>
std::string text(const BatchDecoder<Item>& batch, const void* params) {
  std::string all;
  for (size_t i = 0; i < batch.count(params); ++i) all += text(batch.decode(params, i)) + "; ";
  return all;
}

inline std::string decode(const CallbackEntry& entry, const void* params) {
  return std::visit(
      [params](auto decoder) -> std::string {
        using Decoder = decltype(decoder);
        if constexpr (std::is_same_v<Decoder, ContextCall>) {
          return "context";
        } else if constexpr (std::is_same_v<Decoder, ContextEnd>) {
          return "context ended";
        } else if constexpr (std::is_same_v<Decoder, SharingCall>) {
          return "shared";
        } else if constexpr (std::is_same_v<Decoder, ExitDecoder>) {
          return "at exit: " + text(decoder.decode(params));
        } else if constexpr (std::is_same_v<Decoder, EndDecoder>) {
          return "at entry: " + text(decoder.decode(params));
        } else if constexpr (std::is_pointer_v<Decoder>) {
          return text(decoder(params));
        } else {
          return text(decoder, params);
        }
      },
      entry.decoder);
}

}  // namespace convtrace::cupti
