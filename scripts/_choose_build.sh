# How llama.cpp gets into .venv: compiled for CUDA or the CPU, or as a wheel where there is no compiler.
# Sourced by _prepare_venv.sh.

build_record=$venv/.backend # what the installed llama.cpp was built for, as `backend` below

# Sets `backend`: the GGML_ options of the build, none for the CPU, or "preinstalled" for a wheel that was put into .venv
# by hand. Options in CMAKE_ARGS win; what is built stays until others are given. Only a build for the CPU becomes one
# for CUDA, as soon as that can be built and run.
choose_build() {
    local option
    backend=''
    for option in ${CMAKE_ARGS:-}; do
        [[ $option != *GGML_* ]] || backend=${backend:+$backend }$option
    done
    if [ -n "$backend" ]; then
        return
    fi
    if [ -e "$build_record" ]; then
        backend=$(cat "$build_record")
    elif [ ! -e "$unfinished" ] && ls -d "$venv"/lib/python*/site-packages/llama_cpp >/dev/null 2>&1; then
        backend=preinstalled
    fi
    if [ -z "$backend" ] && find_nvcc && find_compiler && has_nvidia_driver; then
        backend=-DGGML_CUDA=on
    fi
}

# The choice and its reason, for the user.
describe_build() {
    if [ "$backend" = -DGGML_CUDA=on ]; then
        echo "for CUDA: there are an NVIDIA driver and nvcc"
    elif [ "$backend" = preinstalled ]; then
        echo "as the wheel that is in .venv"
    elif [ -n "$backend" ]; then
        echo "with $backend from CMAKE_ARGS"
    elif ! has_nvidia_driver; then
        echo "for the CPU: there is no NVIDIA driver (nvidia-smi)"
    else
        echo "for the CPU: there is an NVIDIA driver, but no nvcc (from the CUDA toolkit) to compile for it"
    fi
}

has_nvidia_driver() {
    command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1
}

# The CUDA toolkit installs to a place that is on nobody's PATH; CMake then wants to be told.
find_nvcc() {
    command -v nvcc >/dev/null && return
    local installed=${CUDA_HOME:-/usr/local/cuda}/bin/nvcc
    [ -x "$installed" ] && export CUDACXX=$installed
}

find_compiler() {
    if [ "$(uname)" = Darwin ]; then
        xcode-select -p >/dev/null 2>&1 # without the tools, macOS has a cc that only offers to install them
    else
        { command -v "${CC:-cc}" || command -v gcc || command -v clang; } >/dev/null &&
            { command -v "${CXX:-c++}" || command -v g++ || command -v clang++; } >/dev/null
    fi
}

install_llama_cpp() {
    local requirement options=()
    requirement=$("$venv/bin/python" -c '
import sys, tomllib
with open(sys.argv[1], "rb") as file:
    dependencies = tomllib.load(file)["project"]["dependencies"]
print(next(each for each in dependencies if each.startswith("llama-cpp-python")))
' "$root/pyproject.toml") || return
    if ! find_compiler; then
        install_llama_cpp_wheel "$requirement"
        return
    fi
    local cmake_args=${CMAKE_ARGS:-}
    if [[ $backend == *GGML_* ]]; then
        [[ $cmake_args == *"$backend"* ]] || cmake_args=${cmake_args:+$cmake_args }$backend
        # pip knows a wheel that it has built by its name, not by its options: each backend gets a cache of its own.
        options=(--cache-dir "$(pip cache dir 2>/dev/null | tail -n 1)/localspec-$(cksum <<<"$backend" | tr ' ' -)")
        [ "$backend" = "$(cat "$build_record" 2>/dev/null)" ] || options+=(--force-reinstall)
    fi
    leave_out_amx
    if CMAKE_ARGS=$cmake_args run_logged "Installing llama.cpp $(describe_build)." \
        pip install --no-deps "$requirement" ${options[@]+"${options[@]}"}; then
        echo "$backend" >"$build_record"
        return
    fi
    [ "$backend" != -DGGML_CUDA=on ] || advice="To build for the CPU instead: CMAKE_ARGS=-DGGML_CUDA=off $0"
    return 1
}

# What GCC makes of ggml's code for AMX, Intel's matrix instructions, ends the process at the first matrix
# (https://github.com/ggml-org/llama.cpp/pull/26954). Without it there are the other ways of multiplying.
leave_out_amx() {
    grep -qw amx_tile /proc/cpuinfo 2>/dev/null || return 0
    local flags='-mno-amx-tile -mno-amx-int8 -mno-amx-bf16'
    export CFLAGS="${CFLAGS:-} $flags" CXXFLAGS="${CXXFLAGS:-} $flags"
}

# Without a compiler: what is installed, a wheel that pip built earlier, or one from the user's package indexes.
install_llama_cpp_wheel() {
    local wheel links=()
    while read -r wheel; do
        [ ! -f "$wheel" ] || links+=(--find-links "$(dirname -- "$wheel")")
    done < <(pip cache list --format=abspath llama_cpp_python 2>/dev/null)
    run_logged "Installing llama.cpp, as a wheel since there is no C++ compiler." \
        pip install --no-deps --only-binary llama-cpp-python ${links[@]+"${links[@]}"} "$1" &&
        echo "$backend" >"$build_record" && return
    rm -f "$unfinished"
    fail "There is no such wheel, and compiling llama.cpp needs a C++ compiler. Install one and run this again:" \
        "Debian, Ubuntu   sudo apt-get install build-essential" \
        "Fedora           sudo dnf install gcc-c++" \
        "Arch             sudo pacman -S base-devel" \
        "macOS            xcode-select --install" \
        "Or name an index of ready-made wheels: README.md, \"Installing with pip\"." \
        "What pip said: $setup_log"
}
