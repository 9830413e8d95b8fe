# Options, warnings and the two kinds of targets (injected into other programs, or ours) for the whole project.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# An installed tree names no path of the machine it was built on.
add_compile_options($<$<COMPILE_LANGUAGE:C,CXX,ASM>:-ffile-prefix-map=${CMAKE_SOURCE_DIR}=.>)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

option(CONVTRACE_BUILD_TESTS "Build the tests" ON)
option(CONVTRACE_WERROR "Treat warnings as errors" OFF)
option(CONVTRACE_JOIN_ROOMS "Compile the sources of a room (a subfolder) as one, which takes half the time" OFF)
option(CONVTRACE_JOIN_TESTS "Compile eight sources of a test program as one, which takes a third of the time" ON)
set(CONVTRACE_SANITIZE "" CACHE STRING "Sanitizers for everything but the preload library: address,undefined or thread")

# CUDA parts: what tools/setup linked into .venv/cuda, else CUDA_HOME, else /usr/local/cuda.
set(convtrace_cuda_roots ${CMAKE_SOURCE_DIR}/.venv/cuda $ENV{CUDA_HOME} /usr/local/cuda)
find_path(CONVTRACE_CUDA_INCLUDE cuda.h HINTS ${convtrace_cuda_roots} PATH_SUFFIXES include)
find_path(CONVTRACE_CUPTI_INCLUDE cupti.h
  HINTS ${CONVTRACE_CUDA_INCLUDE} ${convtrace_cuda_roots} PATH_SUFFIXES include extras/CUPTI/include)
find_program(CONVTRACE_NVCC nvcc HINTS ${convtrace_cuda_roots} PATH_SUFFIXES bin)
# nvcc compiles for GPUs alone here, so any compiler that it accepts will do.
find_program(CONVTRACE_NVCC_HOST NAMES g++ clang++ DOC "The host compiler of nvcc")
if(CONVTRACE_CUDA_INCLUDE AND CONVTRACE_CUPTI_INCLUDE AND CONVTRACE_NVCC)
  set(convtrace_cuda_found ON)
else()
  set(convtrace_cuda_found OFF)
  message(STATUS "convtrace: CUDA headers, CUPTI headers or nvcc not found: only format, reader and tools are built")
endif()
option(CONVTRACE_WITH_CUDA "Build the preload library and the engine" ${convtrace_cuda_found})

add_library(convtrace_warnings INTERFACE)
target_compile_options(convtrace_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wundef -Wvla -Wimplicit-fallthrough
  $<$<COMPILE_LANGUAGE:CXX>:-Wconversion -Wnon-virtual-dtor -Wold-style-cast>
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  $<$<BOOL:${CONVTRACE_WERROR}>:-Werror>)

find_package(Threads REQUIRED)
find_package(zstd CONFIG REQUIRED)
find_package(FlatBuffers CONFIG REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)

if(CONVTRACE_SANITIZE)
  add_compile_options(-fsanitize=${CONVTRACE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${CONVTRACE_SANITIZE})
endif()

# Every library of the project: rooted includes, project warnings, hidden symbols (they end in an injected library).
function(convtrace_library target)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE convtrace_warnings)
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden C_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  target_compile_options(${target} PRIVATE -ffunction-sections -fdata-sections)
  if(CONVTRACE_JOIN_ROOMS)
    convtrace_join_rooms(${target})
  endif()
endfunction()

# convtrace_room_library(NAME ROOM...): the library of all C++ sources in this folder and in these of its subfolders, without
# those that begin a program or a shared library.
function(convtrace_room_library name)
  list(TRANSFORM ARGN APPEND /*.cpp OUTPUT_VARIABLE rooms)
  file(GLOB sources RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS *.cpp ${rooms})
  list(REMOVE_ITEM sources main.cpp entry_points.cpp)
  add_library(convtrace_${name} STATIC ${sources})
  add_library(convtrace::${name} ALIAS convtrace_${name})
  convtrace_library(convtrace_${name})
endfunction()

# Names in unnamed namespaces are then one room's. Sources beside CMakeLists.txt stay alone, and so do those with options of their own.
function(convtrace_join_rooms target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # The warning is meant for unnamed namespaces in headers; g++ takes each joined source for one.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    get_source_file_property(group ${source} UNITY_GROUP)
    if(source MATCHES "([a-z_]+)/[a-z0-9_]+\\.cpp$" AND NOT group)
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${CMAKE_MATCH_1})
    endif()
  endforeach()
endfunction()

# A C++ library of their own, hidden where the linker can (zig's cannot). Sanitizers replace parts of it, so they need the shared one.
if(NOT CONVTRACE_SANITIZE)
  set(convtrace_own_runtime -static-libstdc++ -static-libgcc)
  include(CheckLinkerFlag)
  check_linker_flag(CXX -Wl,--exclude-libs,ALL CONVTRACE_HAS_EXCLUDE_LIBS)
  if(CONVTRACE_HAS_EXCLUDE_LIBS)
    list(APPEND convtrace_own_runtime -Wl,--exclude-libs,ALL)
  endif()
endif()

# Every program that is installed: it needs glibc alone, 2.35 or newer. Unused sections go because libstdc++'s
# random_device would ask for the arc4random of glibc 2.36.
function(convtrace_program target)
  target_link_libraries(${target} PRIVATE convtrace_warnings)
  target_link_options(${target} PRIVATE ${convtrace_own_runtime} -Wl,--gc-sections)
endfunction()

# convtrace_tree_files(TARGET FOLDER FILE...): copies files of this folder to share/convtrace/FOLDER of the build folder,
# which is laid out as an installed tree, so that one relative lookup serves both. `copies` is the list of what it makes.
function(convtrace_tree_files target folder)
  set(copies)
  foreach(file IN LISTS ARGN)
    set(copy ${CMAKE_BINARY_DIR}/share/convtrace/${folder}/${file})
    add_custom_command(OUTPUT ${copy} DEPENDS ${file}
      COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_CURRENT_SOURCE_DIR}/${file} ${copy} VERBATIM)
    list(APPEND copies ${copy})
  endforeach()
  add_custom_target(${target} ALL DEPENDS ${copies})
  set(copies ${copies} PARENT_SCOPE)
endfunction()
