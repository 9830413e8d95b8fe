// A library with a frame whose functions it does not export: what an op of a user looks like.

namespace op {

[[gnu::noinline]] const void* caller() { return __builtin_return_address(0); }

struct Frame {
  const void* address;
  int line;
};

[[gnu::always_inline]] inline Frame inner() { return {caller(), __LINE__}; }

[[gnu::noinline]] Frame hidden_op() {
  Frame frame = inner();
  asm volatile("" : "+r"(frame.line));  // no tail call
  return frame;
}

}  // namespace op

extern "C" [[gnu::visibility("default")]] const void* frame_of_hidden_op(int* line) {
  const op::Frame frame = op::hidden_op();
  *line = frame.line;
  return frame.address;
}
