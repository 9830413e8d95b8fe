#pragma once
/// @file trace_builder.h
/// Writes a trace file in a few lines, for tests of programs that read traces:
///
///     TraceBuilder(dir / "base.ctrace")
///         .rank(0)
///         .fact("version.torch", "2.13.0")
///         .step(0)
///         .stats({.scope = "h.0.mlp", .slot = "output:0", .values = {1.0f, 2.0f}})
///         .launch({.kernel = "_Z3addPf", .family = "add", .grid = {4, 1, 1}})
///         .finding({.kind = FindingKind::kFreedUnderOutput, .op = "demo::gelu"})
///         .close();
///
/// Equal calls give equal files: uuid, clocks and times are fixed unless set. Events carry the last
/// step(), thread 1 and times 1 us apart.
///
/// Errors:   std::runtime_error.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "format/file/sink.h"
#include "format/model/definitions.h"
#include "format/model/events.h"
#include "format/model/meta.h"
#include "format/values/part_encoder.h"

namespace convtrace::test {

/// nullopt: outside any module. "": the root module.
using ScopeName = std::optional<std::string>;

struct StatsSpec {
  ScopeName scope = "";
  std::string slot = "output:0";
  format::Phase phase = format::Phase::kForward;
  uint32_t call = 0;
  std::string op = {};
  std::string kernel = {};  ///< mangled name; family is the same text
  format::Device device = {};
  format::DType dtype = format::DType::kF32;
  format::Extent extent = format::Extent::kTensor;
  format::Capture capture = format::Capture::kStats;  ///< kSnapshot stores `values` as f32
  format::ValueId value = {};
  uint64_t address = 0;
  std::optional<std::vector<uint64_t>> shape =
      std::nullopt;  ///< default {values.size()}, if there are any
  std::vector<float> values =
      {};                    ///< if given: statistics, hash, bytes and samples are made of them
  format::Stats stats = {};  ///< else these
  bool sketched = true;      ///< false: `values` give statistics without a sketch
  bool sampled = true;       ///< false: without raw values
  std::optional<size_t> sample_bytes = std::nullopt;  ///< of `values`, default: all
  uint64_t bytes = 0;                                 ///< default: count elements of dtype
  uint32_t variant = 0;
  std::vector<uint64_t> range_hashes = {};
  uint64_t collective = 0;                      ///< id of the one that sent or received it
  std::optional<uint64_t> hash = std::nullopt;  ///< instead of that of the statistics
  uint32_t thread = 0;                          ///< default: 1
};

/// A call of a collective, and the tensors that it sends and receives.
struct CollectiveSpec {
  std::string op = "all_reduce";
  std::string group = "world";
  std::string members = {};    ///< "": not known
  std::string reduction = {};  ///< "": none
  uint32_t group_rank = 0;
  uint32_t group_size = 1;
  uint32_t peer = format::kNoPeer;
  uint64_t number = 0, tag = 0;
  ScopeName scope = std::nullopt;
  format::Phase phase = format::Phase::kBackward;
  uint32_t call = 0;
  format::DType dtype = format::DType::kF32;
  format::Capture capture = format::Capture::kStats;
  std::vector<std::vector<float>> sent = {};      ///< recorded behind the call
  std::vector<std::vector<float>> received = {};  ///< recorded behind those
  uint64_t later = 0;       ///< elements that it receives beside `received`, recorded by the test
  bool with_values = true;  ///< false: only the call and its counts
  bool hashed_as_stored = false;  ///< the product's hash of f32 elements, which can be concatenated
  std::optional<uint64_t> id = std::nullopt;  ///< default: the next of this trace
};

struct LaunchSpec {
  std::string kernel = "kernel";
  std::string family = {};  ///< default: the kernel's name
  ScopeName scope = "";
  format::Phase phase = format::Phase::kForward;
  uint32_t call = 0;
  std::vector<uint32_t> grid = {1, 1, 1};
  std::vector<uint32_t> block = {1, 1, 1};
  uint32_t shared_bytes = 0;
  uint64_t stream = 0;
  uint8_t device = 0;
  format::SampleOutcome sampled = format::SampleOutcome::kNotAsked;
  std::vector<format::Operand> operands = {};
};

/// Parameters of alloc() and free().
struct MemorySpec {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t generation = 0;
  format::MemorySource source = format::MemorySource::kFramework;
  format::Device device = {};
  uint64_t stream = 0;
  std::vector<std::string> stack = {};  ///< innermost first
};

struct FindingSpec {
  format::FindingKind kind = format::FindingKind::kOutputAliasesInput;
  format::Level level = format::Level::kWarning;
  bool suppressed = false;
  ScopeName scope = "";
  format::Phase phase = format::Phase::kForward;
  uint32_t call = 0;
  std::string op = {};
  std::string kernel = {};
  std::string slot = {};
  std::string other = {};
  uint64_t address = 0;
  uint64_t bytes = 0;
  format::ValueId value = {};
  std::vector<std::string> alloc_stack = {};
  std::vector<std::string> launch_stack = {};
  std::vector<std::string> free_stack = {};
  std::string message = {};
};

/// A tensor of capture `snapshot`: its event, and its bytes in BLOB records.
struct ValueSpec {
  std::string slot = "output:0";
  format::DType dtype = format::DType::kF32;
  std::vector<uint64_t> shape = {};
  std::vector<std::byte> bytes = {};
  size_t part_bytes = format::kPartBytes;
  std::vector<std::byte> base = {};  ///< of equal length, stored before without a base of its own
};

class TraceBuilder {
 public:
  /// Writes a new file.
  explicit TraceBuilder(std::string path);
  /// Writes to any sink.
  explicit TraceBuilder(std::unique_ptr<format::Sink> sink);
  ~TraceBuilder();
  TraceBuilder(const TraceBuilder&) = delete;
  TraceBuilder& operator=(const TraceBuilder&) = delete;

  // META; before the first event they go into record 0, later into a further META record.
  TraceBuilder& meta(const format::TraceMeta& meta);
  TraceBuilder& rank(uint32_t rank, uint32_t world_size = 1);
  TraceBuilder& fact(std::string name, std::string value);

  TraceBuilder& step(uint32_t index);
  TraceBuilder& stats(const StatsSpec& spec);
  /// The hash differs for different values but is not the product's.
  TraceBuilder& value(const ValueSpec& spec);
  TraceBuilder& collective(const CollectiveSpec& spec);
  TraceBuilder& launch(const LaunchSpec& spec);
  TraceBuilder& alloc(const MemorySpec& spec);
  TraceBuilder& free(const MemorySpec& spec);
  TraceBuilder& copy(format::Copy copy);
  TraceBuilder& enter(std::string_view scope, format::Phase phase = format::Phase::kForward,
                      uint32_t call = 0);
  TraceBuilder& leave(std::string_view scope, format::Phase phase = format::Phase::kForward,
                      uint32_t call = 0);
  TraceBuilder& finding(const FindingSpec& spec);
  /// A fact event. `scope` none: of the program.
  TraceBuilder& told(const ScopeName& scope, std::string_view name, std::string_view value);
  TraceBuilder& diagnostic(format::Level level, std::string_view site, std::string_view message);
  TraceBuilder& loss(format::LossReason reason, uint64_t count);
  TraceBuilder& cost(uint64_t host_ns, uint64_t device_ns, uint64_t bytes);
  /// Appends any event; header.step, t_ns and thread are filled in where they are 0.
  TraceBuilder& event(format::Event event);

  /// Ends the chunk: later events are in another record.
  TraceBuilder& flush();
  /// Finishes the file.
  void close();
  /// Leaves the file as a killed process does: everything so far readable, no index, no footer.
  void leave_unclosed();

  [[nodiscard]] format::Definitions& definitions();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Statistics of `values` by their definitions, in double. The hash tells values apart but is not
/// the product's.
[[nodiscard]] format::Stats stats_of(const std::vector<float>& values);

/// The product's hash of f32 elements (format/FORMAT.md 6.10).
[[nodiscard]] uint64_t hash_of(const std::vector<float>& values);

/// A sketch by an index function of its own: linear and unbiased, but not the product's.
[[nodiscard]] format::Sketch sketch_of(const std::vector<float>& values);

}  // namespace convtrace::test
