#include "format/findings/ops/overwritten.h"

#include <string>
#include <vector>

#include "format/findings/ops/op_finding.h"
#include "tests/support/catch.h"

using namespace convtrace;
using namespace convtrace::judge;
using format::Phase;

namespace {

/// Records of the tensors of ops and modules in one piece of memory.
struct Program {
  format::Definitions definitions;
  Overwritten judge{definitions};
  Overwritten::Findings findings;
  uint32_t step = 0, call = 0, version = 0;
  uint64_t storage = 1, layout = 0, address = 0;
  double norm = 0;
  format::Device device{};  ///< a CPU

  void value(Phase phase, const char* module, const char* op, const char* slot, uint64_t hash) {
    format::TensorStats event;
    event.header.step = step;
    event.place = {definitions.intern(module), call, phase};
    if (*op != '\0') event.op = definitions.intern(op);
    event.slot = definitions.intern(slot);
    event.value = {.storage = storage, .version = version};
    event.address = address;
    event.bytes = 256;
    event.layout = layout;
    event.stats.hash = hash;
    event.stats.l2 = norm;
    event.device = device;
    judge.see(event, findings);
  }
  /// A custom op begins or ends.
  void op(format::OpMoment moment) {
    format::Op event;
    event.moment = moment;
    event.op = definitions.intern("Exp");
    judge.see(event, findings);
  }
  void forward(const char* op, const char* slot, uint64_t hash) {
    value(Phase::kForward, "h", op, slot, hash);
  }
  void backward(const char* op, const char* slot, uint64_t hash) {
    value(Phase::kBackward, "h", op, slot, hash);
  }
  [[nodiscard]] std::string text(size_t which) const {
    return describe(findings.at(which), definitions);
  }
  [[nodiscard]] std::string_view named(format::StringId id) const { return definitions.text(id); }
};

}  // namespace

TEST_CASE("overwritten: a kept tensor that changed before its backward is found",
          "[judge][overwritten]") {
  Program p;
  p.forward("Exp", "saved:0", 5);
  p.backward("ExpBackward", "saved:0", 6);
  REQUIRE(p.findings.size() == 1);
  CHECK(p.named(p.findings[0].op) == "ExpBackward");
  CHECK(p.findings[0].hash_before == 5);
  CHECK(p.findings[0].hash_after == 6);
  CHECK(record_of(p.findings[0]).level == format::Level::kError);
  CHECK(p.text(0).find("No op that is recorded gave these bytes") != std::string::npos);
}

TEST_CASE("overwritten: the op whose result lies there is the one that wrote",
          "[judge][overwritten]") {
  Program p;
  p.forward("Exp", "output:0", 5);
  p.forward("Exp", "saved:0", 5);
  p.forward("Silu", "input:0", 5);
  p.backward("SiluBackward", "saved:0", 5);
  SECTION("a result") { p.backward("SiluBackward", "grad_input:0", 6); }
  SECTION("an operand that it wrote") { p.backward("SiluBackward", "saved_shared:0", 6); }
  p.backward("OtherBackward", "grad_output:0", 6);
  p.backward("OtherBackward", "grad_output_after:0", 6);  // it has only read
  p.backward("ExpBackward", "saved:0", 6);
  REQUIRE(p.findings.size() == 1);
  CHECK(p.named(p.findings[0].op) == "SiluBackward");
  CHECK(p.text(0).find("saved:0 of op ExpBackward") != std::string::npos);
}

TEST_CASE("overwritten: a buffer of the module that its next call writes", "[judge][overwritten]") {
  Program p;
  const auto step = [&p](uint64_t begins, uint64_t left) {
    p.forward("Cell", "input:1", begins);
    p.forward("Cell", "saved_buffer:1", begins);
    p.backward("CellBackward", "saved_buffer:1", left);
    ++p.step;
    return record_of(p.findings.back()).level;
  };
  CHECK(step(5, 6) == format::Level::kInfo);  // an average goes on from there
  SECTION("begins anew with each step") {
    CHECK(step(5, 7) == format::Level::kWarning);
    CHECK(step(5, 8) == format::Level::kWarning);
    CHECK(step(8, 9) == format::Level::kInfo);
  }
  SECTION("an average") {
    CHECK(step(6, 7) == format::Level::kInfo);
    CHECK(step(7, 8) == format::Level::kInfo);
  }
}

TEST_CASE("overwritten: buffers that change as they should are passed over",
          "[judge][overwritten]") {
  Program p;
  SECTION("the op itself writes them") {
    p.forward("Norm", "input:1", 4);
    p.forward("Norm", "saved_buffer:1", 5);
  }
  SECTION("running statistics") {
    p.forward("", "buffer_initial:running_mean", 5);
    p.forward("Norm", "input:1", 5);
    p.forward("Norm", "saved_buffer:1", 5);
  }
  SECTION("as PyTorch counts, which compares the versions") {
    p.forward("Norm", "input:1", 5);
    p.forward("Norm", "saved_buffer:1", 5);
    ++p.version;
  }
  p.backward("NormBackward", "saved_buffer:1", 6);
  CHECK(p.findings.empty());
}

TEST_CASE("overwritten: what is kept as an attribute may be meant to change",
          "[judge][overwritten]") {
  Program p;
  p.forward("Gate", "ctx:mask", 5);
  p.version = 1;  // counted, and not compared by PyTorch
  SECTION("filled again by another forward") {
    p.forward("Gate", "ctx:mask@1", 6);
    p.backward("GateBackward", "ctx:mask", 6);
    REQUIRE(p.findings.size() == 1);
    CHECK(record_of(p.findings[0]).level == format::Level::kWarning);
    CHECK(p.text(0).find("first seen as ctx:mask@1") != std::string::npos);
  }
  SECTION("added to by backwards") {
    p.backward("GateBackward", "ctx:mask", 6);
    CHECK(p.findings.empty());
  }
  SECTION("what an earlier backward has returned") {
    p.backward("GateBackward", "grad_input:0", 6);
    p.backward("GateBackward", "ctx:mask", 6);
    REQUIRE(p.findings.size() == 1);
    CHECK(p.named(p.findings[0].op) == "GateBackward");
  }
}

TEST_CASE("overwritten: nothing is said of another value, and of one that did not change",
          "[judge][overwritten]") {
  Program p;
  p.forward("Exp", "saved:0", 5);
  SECTION("unchanged") { p.backward("ExpBackward", "saved:0", 5); }
  SECTION("unchanged, and needed twice") {
    p.backward("ExpBackward", "saved:0", 5);
    p.backward("ExpBackward", "saved:0", 5);
  }
  SECTION("a write that PyTorch counted") {
    p.version = 1;
    p.backward("ExpBackward", "saved:0", 6);
  }
  SECTION("another storage") {
    p.storage = 2;
    p.backward("ExpBackward", "saved:0", 6);
  }
  SECTION("another call of the module") {
    p.call = 1;
    p.backward("ExpBackward", "saved:0", 6);
  }
  SECTION("another op") { p.backward("LogBackward", "saved:0", 6); }
  SECTION("what the forward of a later step kept") {
    p.step = 1;
    p.forward("Exp", "saved:0", 6);
    p.backward("ExpBackward", "saved:0", 6);
  }
  CHECK(p.findings.empty());
}

TEST_CASE("overwritten: lent data that is another one when the backward pass begins is told",
          "[judge][overwritten]") {
  Program p;
  p.value(Phase::kData, "", "", "input:0", 5);
  p.value(Phase::kBackward, "", "", "lent:0", 5);
  CHECK(p.findings.empty());
  SECTION("in this step") {
    p.value(Phase::kBackward, "", "", "lent:0", 6);
    REQUIRE(p.findings.size() == 1);
    CHECK(record_of(p.findings[0]).level == format::Level::kWarning);
    CHECK(p.text(0).find("If no layer needs that data") != std::string::npos);
  }
  SECTION("in the next one, which has read the other data") {
    p.step = 1;
    p.value(Phase::kData, "", "", "input:0", 6);
    p.value(Phase::kBackward, "", "", "lent:0", 6);
    CHECK(p.findings.empty());
  }
}

TEST_CASE("overwritten: what a node of a module has saved is held against the module's call",
          "[judge][overwritten]") {
  Program p;
  p.forward("", "input:0", 5);
  p.value(Phase::kForward, "other", "", "input:0", 5);
  SECTION("as it was") { p.backward("AddmmBackward0", "needed:mat1", 5); }
  SECTION("what another module has taken, written in between, is no sign") {
    p.value(Phase::kBackward, "third", "AddmmBackward0", "needed:mat1", 6);
  }
  SECTION("the call has given other bytes in that memory") {
    p.forward("", "output:0", 6);
    p.backward("TanhBackward0", "needed:result", 6);
  }
  SECTION("a write that PyTorch counted") {
    p.version = 1;
    p.backward("AddmmBackward0", "needed:mat1", 6);
  }
  SECTION("a graph of an earlier step") {
    p.step = 1;
    p.backward("AddmmBackward0", "needed:mat1", 6);
  }
  SECTION("a record may have been lost") {
    format::Loss loss;
    loss.reason = format::LossReason::kQueueFull;
    p.judge.see(loss, p.findings);
    p.backward("AddmmBackward0", "needed:mat1", 6);
  }
  SECTION("written before the node runs") {
    p.backward("AddmmBackward0", "needed:mat1", 6);
    REQUIRE(p.findings.size() == 1);
    CHECK(p.named(p.findings[0].op) == "AddmmBackward0");
    CHECK(p.named(p.findings[0].made.slot) == "input:0");
    CHECK(record_of(p.findings[0]).level == format::Level::kError);
    return;
  }
  SECTION("written behind its record of when the call was left") {
    p.forward("AddmmBackward0", "needed:mat1", 7);
    p.backward("AddmmBackward0", "needed:mat1", 7);
    CHECK(p.findings.empty());
    p.backward("AddmmBackward0", "needed:mat1", 8);
    REQUIRE(p.findings.size() == 1);
    CHECK(p.findings[0].hash_before == 7);
    return;
  }
  CHECK(p.findings.empty());
}

TEST_CASE("overwritten: two calls that keep one buffer are told apart", "[judge][overwritten]") {
  Program p;
  p.forward("Gate", "saved:0", 5);
  p.forward("Gate", "saved:0@1", 6);
  p.forward("Gate", "saved:0@2", 7);  // of a graph that is never used
  p.backward("GateBackward", "saved:0@1", 6);
  CHECK(p.findings.empty());
  p.backward("GateBackward", "saved:0", 6);
  REQUIRE(p.findings.size() == 1);
  CHECK(p.findings[0].hash_before == 5);
}

TEST_CASE("overwritten: an output that its reader finds changed is told with its gradient",
          "[judge][overwritten]") {
  Program p;
  p.value(Phase::kForward, "a", "", "output:0", 5);
  SECTION("given anew by an op that owns the buffer") {
    p.value(Phase::kForward, "c", "", "output:0", 6);
    p.value(Phase::kForward, "b", "", "input:0", 6);
  }
  SECTION("passed on by who has taken it: memory of the program") {
    p.storage = 2;
    p.value(Phase::kForward, "a", "", "input:0", 5);
    p.value(Phase::kForward, "a", "", "output:0", 5);
    p.value(Phase::kForward, "a", "", "input:0", 6);
  }
  SECTION("behind a collective, which may have reduced it in place") {
    p.judge.see(format::Collective{}, p.findings);
    p.value(Phase::kForward, "b", "", "input:0", 6);
  }
  SECTION("in the next step, as a buffer that is used again") {
    p.step = 1;
    p.value(Phase::kForward, "b", "", "input:0", 6);
  }
  SECTION("without a backward, as in evaluation") {
    p.value(Phase::kForward, "b", "", "input:0", 6);
    p.step = 1;  // whose gradient is of another value
  }
  SECTION("changed") {
    p.value(Phase::kForward, "b", "", "input:0", 6);
    CHECK(p.findings.empty());
    p.value(Phase::kBackward, "a", "", "grad_output:1", 9);
    CHECK(p.findings.empty());
    p.value(Phase::kBackward, "a", "", "grad_output:0", 9);
    REQUIRE(p.findings.size() == 1);
    CHECK(record_of(p.findings[0]).level == format::Level::kWarning);
    CHECK(p.text(0).find("through .data") != std::string::npos);
    CHECK(p.text(0).find("input:0 of module b") != std::string::npos);
    CHECK(p.text(0).find("output:0 of module a") != std::string::npos);
    return;
  }
  p.value(Phase::kBackward, "a", "", "grad_output:0", 9);
  CHECK(p.findings.empty());
}

TEST_CASE("overwritten: an output that a hook of the module around it writes is told",
          "[judge][overwritten]") {
  Program p;
  const char* around = "h";
  p.value(Phase::kForward, "h", "Act", "output:0", 5);
  SECTION("unchanged") { p.value(Phase::kForward, around, "", "output:0", 5); }
  SECTION("another module, which has used the buffer again") {
    p.value(Phase::kForward, "hat", "", "output:0", 6);
  }
  SECTION("another op in it, which has") {
    p.value(Phase::kForward, around, "Pool", "output:0", 6);
    p.value(Phase::kForward, around, "", "output:0", 6);
  }
  SECTION("the module around it, whose compiled code has used the memory again") {
    p.value(Phase::kForward, "", "", "output:0", 6);
  }
  SECTION("a write that PyTorch counted") {
    p.version = 1;
    p.value(Phase::kForward, around, "", "output:0", 6);
  }
  SECTION("which gives it") {
    p.value(Phase::kForward, around, "", "output:0", 6);
    p.value(Phase::kBackward, "h", "ActBackward", "grad_output:0", 9);
    REQUIRE(p.findings.size() == 1);
    CHECK(record_of(p.findings[0]).level == format::Level::kWarning);
    CHECK(p.text(0).find("output:0 of module h") != std::string::npos);
    CHECK(p.text(0).find("look for a hook") != std::string::npos);
    return;
  }
  p.value(Phase::kBackward, "h", "ActBackward", "grad_output:0", 9);
  CHECK(p.findings.empty());
}

TEST_CASE("overwritten: a gradient that a hook writes while others hold it is told",
          "[judge][overwritten]") {
  Program p;
  p.backward("", "grad_output:0", 5);
  SECTION("its own") {
    p.backward("ExpBackward", "grad_output:0", 6);
    p.backward("ExpBackward", "grad_output_after:0", 6);
    p.backward("ExpBackward", "grad_output_shared:0", 6);
  }
  SECTION("written by the op") {
    p.backward("ExpBackward", "grad_output:0", 5);
    p.backward("ExpBackward", "grad_output_shared:0", 6);
  }
  SECTION("of another call, for which the program has filled its memory again") {
    p.call = 1;
    p.backward("ExpBackward", "grad_output:0", 6);
    p.backward("ExpBackward", "grad_output_shared:0", 6);
  }
  SECTION("held by others") {
    p.backward("ExpBackward", "grad_output:0", 6);
    p.backward("ExpBackward", "grad_output_shared:0", 6);
    REQUIRE(p.findings.size() == 1);
    CHECK(record_of(p.findings[0]).level == format::Level::kError);
    CHECK(p.text(0).find("grad_output:0 of op ExpBackward") != std::string::npos);
    return;
  }
  CHECK(p.findings.empty());
}

TEST_CASE("overwritten: a gradient that hooks write while another branch holds it is told",
          "[judge][overwritten]") {
  Program p;
  p.backward("", "grad_output:0", 5);
  const auto next = [&p] {
    p.value(Phase::kOptimizer, "h", "", "param:weight", 1);
    ++p.step;
  };
  SECTION("written") {
    p.backward("AddmmBackward0", "grad_output_hooked:0", 6);
    CHECK(p.findings.empty());  // the other branch may do the same
    next();
    REQUIRE(p.findings.size() == 1);
    CHECK(record_of(p.findings[0]).level == format::Level::kWarning);
    CHECK(p.text(0).find("clamp, not clamp_") != std::string::npos);
  }
  SECTION("written alike by the hooks of both") {
    p.backward("AddmmBackward0", "grad_output_hooked:0", 6);
    p.value(Phase::kBackward, "other", "", "grad_output:0", 6);
    p.value(Phase::kBackward, "other", "AddmmBackward0", "grad_output_hooked:0", 6);
    next();
    CHECK(p.findings.empty());
  }
  SECTION("written again by the other's hook") {
    p.backward("AddmmBackward0", "grad_output_hooked:0", 6);
    p.value(Phase::kBackward, "other", "", "grad_output:0", 6);
    p.value(Phase::kBackward, "other", "AddmmBackward0", "grad_output_hooked:0", 7);
    next();
    CHECK(p.findings.size() == 1);
  }
  SECTION("left as it was, or written in another call") {
    p.backward("AddmmBackward0", "grad_output_hooked:0", 5);
    p.call = 1;
    p.backward("AddmmBackward0", "grad_output_hooked:0", 6);
    next();
    CHECK(p.findings.empty());
  }
}

TEST_CASE("overwritten: state of an object that a later call has replaced",
          "[judge][overwritten]") {
  Program p;
  const std::string state = "state:STATE.mask", later = "state:STATE.mask@1";
  const auto read = [&p](const std::string& slot, uint64_t hash, uint64_t after) {
    p.backward("MaskBackward", slot.c_str(), hash);
    p.backward("MaskBackward", ("state_after" + slot.substr(slot.find(':'))).c_str(), after);
  };
  const auto told = [&p](const char* how, format::Level level = format::Level::kWarning) {
    REQUIRE(p.findings.size() == 1);
    CHECK(record_of(p.findings[0]).level == level);
    CHECK(p.text(0).find(how) != std::string::npos);
  };
  p.forward("Mask", state.c_str(), 5);
  SECTION("the same bytes in another tensor") {
    p.storage = 2;
    read(state, 5, 5);
  }
  SECTION("what no forward has put there") {
    p.storage = 2;
    read(state, 6, 6);
  }
  SECTION("put there in a later step") {
    p.storage = 2;
    ++p.step;
    p.forward("Other", later.c_str(), 6);
    read(state, 6, 6);
  }
  SECTION("a scratch buffer of the backward, too") {
    p.forward("Mask", later.c_str(), 6);
    read(state, 6, 7);
  }
  SECTION("each call makes its own") {
    p.storage = 2;
    p.forward("Mask", later.c_str(), 6);
    read(later, 6, 6);
    CHECK(p.findings.empty());
    read(state, 6, 6);
    return told("was first seen as state:STATE.mask@1 of op Mask");
  }
  SECTION("each call fills it") {
    p.forward("Mask", later.c_str(), 6);
    read(state, 6, 6);
    return told("was first seen as state:STATE.mask@1 of op Mask");
  }
  SECTION("the loop writes it") {
    p.value(Phase::kLoss, "", "", state.c_str(), 6);
    read(state, 6, 6);
    return told("It was written behind the call", format::Level::kInfo);
  }
  CHECK(p.findings.empty());
}

TEST_CASE("overwritten: a view with other strides reads other bytes in its order",
          "[judge][overwritten]") {
  for (const uint64_t strides : {uint64_t{0}, uint64_t{7}}) {
    Program p;
    p.value(Phase::kForward, "conv", "", "output:0", 5);
    p.layout = strides;
    p.value(Phase::kForward, "norm", "", "input:0", 6);
    p.layout = 0;
    p.value(Phase::kBackward, "conv", "", "grad_output:0", 9);
    CHECK(p.findings.size() == (strides == 0 ? 1 : 0));
  }
}

TEST_CASE("overwritten: an op of torch that writes what it only may read is named",
          "[judge][overwritten][ops]") {
  Program p;
  p.value(Phase::kForward, "a", "aten::addmm", "output:0", 5);
  p.value(Phase::kForward, "a", "", "output:0", 5);
  p.forward("aten::silu", "input:0", 5);
  p.forward("aten::silu", "input_after:0", 6);
  const auto is_told = [&p] {
    REQUIRE(p.findings.size() == 1);
    CHECK(p.named(p.findings[0].op) == "aten::silu");
    CHECK(record_of(p.findings[0]).level == format::Level::kError);
    CHECK(p.text(0).find("left of its input:0 is what lies there now") != std::string::npos);
  };
  SECTION("autograd has saved it") {
    p.backward("aten::silu_backward", "input:1", 6);
    is_told();
  }
  SECTION("a residual reads it, and the gradient of the module's output comes") {
    p.forward("aten::add.Tensor", "input:1", 6);
    CHECK(p.findings.empty());
    p.value(Phase::kBackward, "a", "", "grad_output:0", 9);
    is_told();
    CHECK(
        p.text(0).find("input:0 of op aten::silu in module h (call 0, forward), behind that, still "
                       "found it as it was") != std::string::npos);
  }
  SECTION("nobody reads it in the backward pass") {}
  SECTION("the code of a custom op reads it, which may write what it keeps") {
    p.op(format::OpMoment::kBegin);
    p.backward("aten::clone", "input:0", 6);
    p.op(format::OpMoment::kEnd);
    CHECK(p.findings.empty());
  }
  SECTION("of a device, whose records come when ops around them have ended") {
    p.device = {format::Device::Type::kCuda, 0};
    p.backward("aten::silu_backward", "input:1", 6);
    CHECK(p.findings.empty());
  }
}

TEST_CASE("overwritten: two ops of torch that find a value in two forms",
          "[judge][overwritten][ops]") {
  Program p;
  p.forward("aten::mul.Tensor", "output:0", 5);
  SECTION("a warning, if both took it and autograd needs it") {
    p.forward("aten::sin", "input:0", 5);
    p.forward("aten::mul.Tensor", "input:1", 6);
    p.backward("aten::cos", "input:0", 6);
    REQUIRE(p.findings.size() == 1);
    CHECK(record_of(p.findings[0]).level == format::Level::kWarning);
    CHECK(p.named(p.findings[0].op) == "aten::mul.Tensor");
    return;
  }
  SECTION("memory that is filled behind the op which made it") {
    p.forward("aten::mul.Tensor", "input:1", 6);
    p.backward("aten::cos", "input:0", 6);
  }
  SECTION("it is not needed") {
    p.forward("aten::sin", "input:0", 5);
    p.forward("aten::mul.Tensor", "input:1", 6);
  }
  SECTION("a later step") {
    p.forward("aten::sin", "input:0", 5);
    ++p.step;
    p.forward("aten::mul.Tensor", "input:1", 6);
    p.backward("aten::cos", "input:0", 6);
  }
  SECTION("an op of torch that is known to write it") {
    p.forward("aten::native_batch_norm", "input:3", 5);
    p.forward("aten::native_batch_norm", "input_counted:3", 6);
    p.forward("aten::mean.dim", "input:0", 6);
    p.backward("aten::native_batch_norm_backward", "input:3", 6);
  }
  SECTION("PyTorch has counted the write") {
    p.forward("aten::sin", "input:0", 5);
    ++p.version;
    p.forward("aten::mul.Tensor", "input:1", 6);
    p.backward("aten::cos", "input:0", 6);
  }
  SECTION("another call of the op") {
    p.forward("aten::sin", "input:0", 5);
    p.forward("aten::mul.Tensor", "input:1", 6);
    p.storage = 2;
    p.forward("aten::mul.Tensor", "output:0", 7);
    p.forward("", "output:0", 7);
    p.backward("", "grad_output:0", 9);
  }
  CHECK(p.findings.empty());
}

TEST_CASE("overwritten: scores that do not give a loss any more are held against the output",
          "[judge][overwritten]") {
  Program p;
  p.forward("", "output:0", 5);
  const auto at_loss = [&p](uint64_t hash) {
    p.value(Phase::kLoss, "", "MseLossBackward0", "needed:self", hash);
  };
  SECTION("written") {
    at_loss(6);
    REQUIRE(p.findings.size() == 1);
    CHECK(record_of(p.findings[0]).level == format::Level::kError);
    CHECK(p.named(p.findings[0].place.scope) == "h");
    return;
  }
  SECTION("as they were: a target was written, or the loss") { at_loss(5); }
  SECTION("a collective may have averaged the loss in its memory") {
    p.judge.see(format::Collective{}, p.findings);
    at_loss(6);
  }
  CHECK(p.findings.empty());
}

TEST_CASE("overwritten: a buffer of packed tensors that is used again is found",
          "[judge][overwritten]") {
  Program p;
  p.forward("SigmoidBackward0", "packed:result", 5);
  SECTION("by what is packed later") {
    p.version = 1;
    p.value(Phase::kForward, "next", "AddmmBackward0", "packed:mat1", 6);
    p.backward("SigmoidBackward0", "packed:result", 6);
    REQUIRE(p.findings.size() == 1);
    CHECK(p.text(0).find("first seen as packed:mat1 of op AddmmBackward0 in module next") !=
          std::string::npos);
    return;
  }
  SECTION("filled late") { p.backward("SigmoidBackward0", "packed:result", 6); }
  SECTION("used again behind the backward pass") {
    p.backward("SigmoidBackward0", "packed:result", 5);
    ++p.step;
    p.value(Phase::kForward, "next", "AddmmBackward0", "packed:mat1", 6);
  }
  CHECK(p.findings.empty());
}

TEST_CASE("overwritten: a block of an own pool that two calls keep on ctx is found",
          "[judge][overwritten]") {
  Program p;
  p.address = 4096;
  p.forward("Scores", "ctx:map", 5);
  p.storage = 2;  // the same block in another tensor
  SECTION("another call has filled it") {
    p.value(Phase::kForward, "next", "Scores", "ctx:map", 6);
    p.storage = 1;
    p.backward("ScoresBackward", "ctx:map", 6);
    REQUIRE(p.findings.size() == 1);
    CHECK(record_of(p.findings[0]).level == format::Level::kWarning);
    CHECK(p.text(0).find("first seen as ctx:map of op Scores in module next") != std::string::npos);
    return;
  }
  SECTION("in an earlier step") {
    p.value(Phase::kForward, "next", "Scores", "ctx:map", 6);
    p.storage = 3;
    ++p.step;
    p.forward("Scores", "ctx:map", 5);
    p.backward("ScoresBackward", "ctx:map", 6);
  }
  SECTION("another block") {
    p.address = 8192;
    p.value(Phase::kForward, "next", "Scores", "ctx:map", 6);
    p.address = 4096;
    p.storage = 1;
    p.backward("ScoresBackward", "ctx:map", 6);
  }
  CHECK(p.findings.empty());
}

TEST_CASE("overwritten: blocks of an arena that lie across each other", "[judge][overwritten]") {
  Program p;
  const auto keep = [&p](const char* module, uint64_t storage, uint64_t address, uint64_t hash) {
    p.storage = storage + 100;
    p.address = 1 << 20;
    p.value(Phase::kForward, module, "Stash", "output:0", hash);
    p.storage = storage;
    p.address = address;
    p.value(Phase::kForward, module, "Stash", "ctx:kept", hash);
  };
  keep("h", 1, 4096, 5);
  const auto back = [&p](uint64_t hash) {
    p.storage = 1;
    p.address = 4096;
    p.backward("StashBackward", "ctx:kept", hash);
  };
  SECTION("a later call has filled a part") {
    keep("next", 2, 4096 + 128, 6);
    back(7);
    REQUIRE(p.findings.size() == 1);
    CHECK(record_of(p.findings[0]).level == format::Level::kWarning);
    CHECK(
        p.text(0).find("ctx:kept of op Stash in module next (call 0, forward) was put into memory "
                       "that covers a part of it") != std::string::npos);
    return;
  }
  SECTION("side by side, and a backward adds to it") {
    keep("next", 2, 4096 + 256, 6);
    back(7);
  }
  SECTION("windows of a table, to which a backward adds") {
    p.storage = 2;
    p.address = 4096 + 128;
    p.value(Phase::kForward, "next", "Stash", "input:0", 6);
    p.value(Phase::kForward, "next", "Stash", "ctx:kept", 6);
    back(7);
  }
  SECTION("of an earlier step") {
    keep("next", 2, 4096 + 128, 6);
    ++p.step;
    keep("h", 1, 4096, 5);
    back(7);
  }
  CHECK(p.findings.empty());
}

TEST_CASE("overwritten: weights that a later call of the module changes", "[judge][overwritten]") {
  Program p;
  const auto call = [&p](uint32_t number, uint64_t hash, double norm) {
    p.call = number;
    p.norm = norm;
    p.forward("MmBackward0", "needed:mat2", hash);
  };
  call(0, 5, 1);
  SECTION("clearly") {
    call(1, 6, 1.2);
    p.call = 0;
    p.backward("MmBackward0", "needed:mat2", 6);
    CHECK(record_of(p.findings.at(0)).level == format::Level::kWarning);
  }
  SECTION("hardly: they are normalized anew") {
    call(1, 6, 1.01);
    p.call = 0;
    p.backward("MmBackward0", "needed:mat2", 6);
    CHECK(record_of(p.findings.at(0)).level == format::Level::kInfo);
  }
  SECTION("and they are changed again behind it") {
    call(1, 6, 1.2);
    p.call = 0;
    p.backward("MmBackward0", "needed:mat2", 7);
    CHECK(record_of(p.findings.at(0)).level == format::Level::kInfo);
  }
}

TEST_CASE("overwritten: a hook that writes what its module's node has saved is found",
          "[judge][overwritten]") {
  Program p;
  p.forward("TanhBackward0", "needed:result", 5);  // before the hooks
  SECTION("written") {
    p.forward("", "output:0", 6);
    p.backward("TanhBackward0", "needed:result", 6);
    REQUIRE(p.findings.size() == 1);
    CHECK(record_of(p.findings[0]).level == format::Level::kError);
    CHECK(p.text(0).find("only hooks of that module ran in between") != std::string::npos);
    return;
  }
  SECTION("read") {
    p.forward("", "output:0", 5);
    p.backward("TanhBackward0", "needed:result", 5);
  }
  SECTION("no record in the next step") {
    p.forward("", "output:0", 5);
    ++p.step;
    p.forward("", "output:0", 6);
    p.backward("TanhBackward0", "needed:result", 6);
  }
  CHECK(p.findings.empty());
}
