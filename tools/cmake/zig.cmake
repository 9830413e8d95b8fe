# Toolchain of tools/wheel: zig's clang and libc++, for glibc 2.28. CONVTRACE_ZIG is the program `zig`, CONVTRACE_ARCH the
# processor, CONVTRACE_DEPENDENCIES the root of the libraries, unpacked for that processor.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES CONVTRACE_ZIG CONVTRACE_ARCH CONVTRACE_DEPENDENCIES)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${CONVTRACE_ARCH})
# Programs, since ccache takes one word for the compiler.
foreach(language cc c++)
  set(program ${CONVTRACE_DEPENDENCIES}/zig-${language})
  if(NOT EXISTS ${program})
    file(WRITE ${program}
      "#!/bin/sh\nexec '${CONVTRACE_ZIG}' ${language} -target ${CONVTRACE_ARCH}-linux-gnu.2.28 -isystem '${CONVTRACE_DEPENDENCIES}/usr/include' \"$@\"\n")
    file(CHMOD ${program} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  endif()
endforeach()
set(CMAKE_C_COMPILER ${CONVTRACE_DEPENDENCIES}/zig-cc)
set(CMAKE_CXX_COMPILER ${CONVTRACE_DEPENDENCIES}/zig-c++)
set(CMAKE_FIND_ROOT_PATH ${CONVTRACE_DEPENDENCIES})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_LIBRARY_ARCHITECTURE ${CONVTRACE_ARCH}-linux-gnu)
# Programs of another processor run in qemu, with the C library in emulated/.
if(EXISTS ${CONVTRACE_DEPENDENCIES}/emulated)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${CONVTRACE_DEPENDENCIES}/qemu;-L;${CONVTRACE_DEPENDENCIES}/emulated)
endif()
