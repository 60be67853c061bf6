# onnxfuse_add_kernels(<objects> [<source>...]): compiles kernels once per instruction set and sets <objects> to the
# object files, to be linked into a library or a test. Without sources: every custom_ops/<op>/kernel_cpu*.cc there is.
#
#   include(cmake/kernel_targets.cmake)
#   onnxfuse_add_kernels(kernel_objects)
#   target_sources(onnxfuse_ops PRIVATE ${kernel_objects})
#
# Sources include headers from the repository root ("custom_ops/_runtime/simd.h"). See custom_ops/_runtime/dispatch.h
# for what a kernel_cpu.cc looks like. No fast-math, and no contraction of a*b+c: a fused multiply-add is written Fma.

set(ONNXFUSE_KERNEL_OPTIONS "" CACHE STRING "Further compile options for the kernels, such as -fsanitize=address")
get_filename_component(ONNXFUSE_SOURCE_ROOT "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)

include(CheckCXXCompilerFlag)
include(CheckCXXSourceCompiles)
check_cxx_source_compiles("
#if !defined(__x86_64__) && !defined(_M_X64)
#error other machines build the baseline only
#endif
int main() {}" ONNXFUSE_X86_64)

check_cxx_compiler_flag(-mamx-bf16 ONNXFUSE_HAS_AMX)

function(onnxfuse_isa_options isa result)
  if(isa STREQUAL "avx512")
    if(MSVC)
      set(options /arch:AVX512)
    else()
      set(options -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c -mprefer-vector-width=512)
      if(ONNXFUSE_HAS_AMX)
        list(APPEND options -mamx-tile -mamx-bf16)  # what the compiler never uses by itself
      endif()
    endif()
  elseif(isa STREQUAL "avx2")
    if(MSVC)
      set(options /arch:AVX2)
    else()
      set(options -mavx2 -mfma -mf16c)
    endif()
  else()
    set(options "")
  endif()
  set(${result} ${options} PARENT_SCOPE)
endfunction()

function(onnxfuse_kernel_options result)
  if(MSVC)
    set(options /O2 /fp:precise)
  else()
    set(options -O3 -Wall -Wextra -ffp-contract=off -fno-math-errno -fno-exceptions -fno-rtti)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # GCC's own AVX-512 headers set off these two (GCC bug 105593).
      list(APPEND options -Wno-uninitialized -Wno-maybe-uninitialized)
      # A kernel is a few loops whose bodies are small functions. GCC leaves calls in them, vectors spilled around each, once the
      # function has grown to twice its size.
      list(APPEND options --param=large-function-growth=10000 --param=inline-unit-growth=1000)
    endif()
  endif()
  set(${result} ${options} ${ONNXFUSE_KERNEL_OPTIONS} PARENT_SCOPE)
endfunction()

function(onnxfuse_add_kernels objects)
  set(sources ${ARGN})
  if(NOT sources)
    file(GLOB sources CONFIGURE_DEPENDS "${ONNXFUSE_SOURCE_ROOT}/custom_ops/*/kernel_cpu*.cc")
  endif()
  set(isas baseline)
  if(ONNXFUSE_X86_64)
    list(APPEND isas avx2 avx512)
  endif()
  if("-DONNXFUSE_WITHOUT_AVX512" IN_LIST ONNXFUSE_KERNEL_OPTIONS)  # see dispatch.h
    list(REMOVE_ITEM isas avx512)
  endif()
  set(found "")
  set(level 0)
  foreach(isa IN LISTS isas)
    set(target ${objects}_${isa})
    onnxfuse_isa_options(${isa} isa_options)
    onnxfuse_kernel_options(options)
    add_library(${target} OBJECT ${sources})
    target_compile_features(${target} PRIVATE cxx_std_20)
    target_include_directories(${target} PRIVATE "${ONNXFUSE_SOURCE_ROOT}")
    target_compile_definitions(${target} PRIVATE ONNXFUSE_ISA_LEVEL=${level} ONNXFUSE_TARGET_NAMESPACE=${isa})
    target_compile_options(${target} PRIVATE ${options} ${isa_options})
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
                                               VISIBILITY_INLINES_HIDDEN ON)
    list(APPEND found $<TARGET_OBJECTS:${target}>)
    math(EXPR level "${level} + 1")
  endforeach()
  set(${objects} ${found} PARENT_SCOPE)
endfunction()
