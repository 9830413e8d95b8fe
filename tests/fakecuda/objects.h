#pragma once
/// @file objects.h
/// What the handles of cuda.h stand for in the fake driver.

#include <cuda.h>

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakecuda/fakecuda.h"

/// A kernel of a module or library. CUfunction and CUkernel are different handles to one, and only
/// launches take either.
struct CUfunc_st {
  const fakecuda_kernel* kernel = nullptr;
  std::vector<size_t> offsets;
  bool is_kernel = false;       ///< handed out as CUkernel
  CUcontext context = nullptr;  ///< of a module
  std::atomic<bool> launched{false};
  std::unique_ptr<CUfunc_st> function;  ///< of a kernel: what cuKernelGetFunction has made of it
};

struct CUmod_st {
  std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
};

struct CUlib_st {
  std::map<std::string, std::unique_ptr<CUfunc_st>> kernels;
};

namespace fakecuda {

/// One launch, with its arguments copied into a buffer that has the layout the device would see.
struct KernelWork {
  CUfunction function = nullptr;
  unsigned grid[3] = {0, 0, 0};
  unsigned block[3] = {0, 0, 0};
  unsigned shared_bytes = 0;
  std::vector<char> buffer;
  std::vector<void*> values;  ///< one pointer into the buffer for each parameter

  /// As fakecuda_launch has it.
  void run(uint64_t& unfinished) const;
};

/// What a stream does at one time and a graph holds as one node: a kernel, another graph, or
/// something else.
struct Work {
  std::shared_ptr<const KernelWork> kernel;
  std::shared_ptr<CUgraph_st> child;
  std::function<void()> other;
  CUgraphNodeType other_type = CU_GRAPH_NODE_TYPE_HOST;

  /// @param unfinished  not 0 behind: it is to be run again.
  void run(uint64_t& unfinished) const;
  void run_to_end() const;
};

}  // namespace fakecuda

struct CUgraphNode_st {
  fakecuda::Work work;
  CUgraphNode source = nullptr;  ///< of an executable graph: the node it was made from
  bool enabled = true;
};

/// Work in order; a capture is one that grows. Nodes keep their addresses.
struct CUgraph_st {
  std::list<CUgraphNode_st> nodes;
  std::shared_ptr<const bool> life = std::make_shared<bool>();

  void run() const;
};
struct CUgraphExec_st : CUgraph_st {
  std::weak_ptr<const bool> source_life;  ///< of the graph whose nodes name these
};

struct CUstream_st {
  static inline std::atomic<uint64_t> last_id{0};
  uint64_t id = ++last_id;
  CUcontext context = nullptr;
  bool blocking = true;                 ///< synchronises with the legacy stream
  std::mutex running;                   ///< held while work is done, without the scheduler
  std::shared_ptr<CUgraph_st> capture;  ///< under Driver::mutex; shared by streams that joined
  bool joined = false;                  ///< to another stream's capture, by an event
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id capturing_thread;
};

struct CUevent_st {
  CUcontext context = nullptr;
  std::atomic<uint64_t> recorded_ns{0};
  std::atomic<uint64_t> record{0};  ///< the last one, as the scheduler numbers it
  CUstream captured_on = nullptr;  ///< under Driver::mutex: it was recorded into this one's capture
};

struct CUctx_st {
  int device = 0;
  uint32_t uid = 0;
  CUstream_st legacy;
  std::map<std::thread::id, CUstream_st> per_thread;  ///< under Driver::mutex
  std::vector<std::pair<void*, size_t>> host_memory;  ///< that it owns: gone with it
};
