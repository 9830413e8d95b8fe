#pragma once
/// @file rank.h
/// One rank of a made-up job: its weights, what it computes in a step, and the records of that.
///
/// Threads:  one for all ranks of a job, since they share a Maker.

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/simulate/faults.h"
#include "tests/simulate/program.h"
#include "tests/simulate/records.h"
#include "tests/simulate/tensor.h"

namespace convtrace::simulate {

/// What all ranks have in common.
struct World {
  Layout layout;
  Groups groups;
  Model model;
  uint64_t seed = 0;
  Names names;
  Maker maker;
};

/// A call of a collective on one rank.
struct Call {
  uint32_t rank = 0;
  const Instruction* instruction = nullptr;
  UseInfo info;
  uint32_t group = 0, group_rank = 0, size = 0;
  uint32_t peer = format::kNoPeer;
  format::DType dtype = format::DType::kUnknown;
  Value buffer;  ///< what it gives or would give; none of a barrier or recv
  uint64_t elements = 0;
};

class Rank {
 public:
  Rank(World& world, uint32_t rank);

  void begin(uint32_t step, const Program& program);
  [[nodiscard]] bool is_done() const { return at_ == program_->size(); }
  [[nodiscard]] const Instruction& next() const { return (*program_)[at_]; }

  /// @pre next() is no collective. Does it.
  void compute();
  /// @pre next() is a collective. Records the call and what is sent. @param number  of the call
  [[nodiscard]] Call prepare() const;
  void record_call(const Call& call, uint64_t number);
  /// next() is complete. @param received  nothing where this rank receives nothing
  void complete(const Call& call, const std::vector<Value>& received);
  /// It is left out.
  void skip(const Call& call);

  uint64_t now_ns = 0;
  std::vector<Record> records;

 private:
  struct Micro {
    std::vector<Value> x, sum;  ///< of each layer
    Value logits;
  };

  void input(const Instruction& at);
  void partial(const Instruction& at);
  void finish(const Instruction& at);
  void head();
  void loss(const Instruction& at);
  void loss_gradient(const Instruction& at);
  void backward(const Instruction& at);
  void backward_finish(const Instruction& at);
  void pack(const Instruction& at);
  void norm();
  void clip();
  void step_layers(uint16_t bucket);
  void update(const Instruction& at);
  void record_parameters(format::Phase phase);
  void unpack(const Bucket& bucket, const Value& flat);
  void take(const Instruction& at, const Value& value);
  void strike(const Instruction& at, const char* what, Value* value = nullptr) const;

  [[nodiscard]] Value outgoing(const Instruction& at) const;
  [[nodiscard]] Value stepped(const Value& parameter, const Value& gradient) const;
  [[nodiscard]] Value updated_shard(uint16_t bucket) const;
  [[nodiscard]] Value packed_parameters(const Bucket& bucket) const;
  [[nodiscard]] Value slice(const Value& whole, uint64_t begin, uint64_t count) const;
  [[nodiscard]] Value scalar(double value) const;
  [[nodiscard]] Value damaged(const Value& value, const Fault& fault) const;
  [[nodiscard]] Value sum_of(const Value& a, const Value& b, format::DType type) const;
  [[nodiscard]] Value scaled(const Value& value, double factor) const;
  [[nodiscard]] uint64_t shift() const { return 17 + tensor_; }
  [[nodiscard]] Name layer_name(uint32_t layer, bool inner) const;
  [[nodiscard]] Name scope_of(const Instruction& at, const UseInfo& info) const;
  Record& record(Record::Kind kind, format::Phase phase, Name scope, uint32_t call);
  void record_value(format::Phase phase, Name scope, uint32_t call, Name slot, const Value& value);

  World& world_;
  uint32_t rank_, tensor_, data_, stage_;
  uint32_t step_ = 0;
  const Program* program_ = nullptr;
  size_t at_ = 0;
  uint64_t calls_ = 0;  ///< of collectives, in the whole job
  std::map<std::tuple<format::Phase, Name, Name>, uint32_t> counts_;  ///< of this step

  std::vector<Value> weights_, biases_;  ///< no bias: null
  std::vector<Value> weights_before_, biases_before_;
  std::vector<Value> weight_gradients_, bias_gradients_, buckets_;
  std::vector<Micro> micro_;
  Value x_, gradient_, layer_gradient_, buffer_, losses_, norm_;
  double coefficient_ = 1;
};

}  // namespace convtrace::simulate
