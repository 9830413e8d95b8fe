#pragma once
/// @file objects.h
/// The objects behind the handles of cuda.h in the fake driver.

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

/// A kernel of a module or library. CUfunction and CUkernel are different handles of it, and only
/// launches accept both.
struct CUfunc_st {
  const fakecuda_kernel* kernel = nullptr;
  std::vector<size_t> offsets;
  bool is_kernel = false;       ///< its handle is a CUkernel
  CUcontext context = nullptr;  ///< context of its module
  std::atomic<bool> launched{false};
  std::unique_ptr<CUfunc_st> function;  ///< of a kernel: made by cuKernelGetFunction
};

struct CUmod_st {
  std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
};

struct CUlib_st {
  std::map<std::string, std::unique_ptr<CUfunc_st>> kernels;
};

namespace fakecuda {

/// One launch, with its arguments copied into a buffer in the layout of the device.
struct KernelWork {
  CUfunction function = nullptr;
  unsigned grid[3] = {0, 0, 0};
  unsigned block[3] = {0, 0, 0};
  unsigned shared_bytes = 0;
  std::vector<char> buffer;
  std::vector<void*> values;  ///< for each parameter, a pointer into the buffer

  /// Runs it as described for fakecuda_launch.
  void run(uint64_t& unfinished) const;
};

/// An item of work of a stream, or a node of a graph: a kernel, another graph, or something else.
struct Work {
  std::shared_ptr<const KernelWork> kernel;
  std::shared_ptr<CUgraph_st> child;
  std::function<void()> other;
  CUgraphNodeType other_type = CU_GRAPH_NODE_TYPE_HOST;

  /// @param unfinished  if not 0 afterwards, it must be run again.
  void run(uint64_t& unfinished) const;
  void run_to_end() const;
};

}  // namespace fakecuda

struct CUgraphNode_st {
  fakecuda::Work work;
  CUgraphNode source = nullptr;  ///< of an executable graph: the node it was made from
  bool enabled = true;
};

/// Work in order; a capture extends it. Nodes keep their addresses.
struct CUgraph_st {
  std::list<CUgraphNode_st> nodes;
  std::shared_ptr<const bool> life = std::make_shared<bool>();

  void run() const;
};
struct CUgraphExec_st : CUgraph_st {
  std::weak_ptr<const bool> source_life;  ///< of the graph whose nodes are named here
};

/// A capture in progress, shared by the streams that take part; who ends it gets the graph.
struct Capture {
  std::unique_ptr<CUgraph_st> graph = std::make_unique<CUgraph_st>();
};

struct CUstream_st {
  static inline std::atomic<uint64_t> last_id{0};
  uint64_t id = ++last_id;
  CUcontext context = nullptr;
  bool blocking = true;              ///< synchronises with the legacy stream
  std::mutex running;                ///< held while work is done, without the scheduler
  std::shared_ptr<Capture> capture;  ///< under Driver::mutex
  CUgraphNode captured = nullptr;    ///< the last node that it added to its capture
  bool joined = false;               ///< to another stream's capture, by an event
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
  std::atomic<bool> made{true};  ///< false: FAKECUDA_RUNTIME_CONTEXT, until `maker` uses it
  std::thread::id maker;
};
