# Read as CMake's toolchain file: of FlatBuffers only the compiler is built. Its library, tests and
# samples are four fifths of the work.
set(FLATBUFFERS_BUILD_TESTS OFF CACHE BOOL "")
set(FLATBUFFERS_BUILD_FLATLIB OFF CACHE BOOL "")
# It runs for a tenth of a second: nothing is gained by making it fast or easy to debug.
set(CMAKE_CXX_FLAGS_DEBUG "-O0" CACHE STRING "")
set(CMAKE_CXX_FLAGS_RELEASE "-O0" CACHE STRING "")
# Its files include the same headers: read together they take a fifth of the time.
set(CMAKE_UNITY_BUILD ON CACHE BOOL "")
