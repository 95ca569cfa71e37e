# Runs a long command with its output in the log and its progress on the screen. Sourced by _prepare_venv.sh.

# run_logged DESCRIPTION COMMAND...
# The command stays in the foreground, where Ctrl-C reaches it and everything it started; the display runs beside it.
run_logged() {
    local status=0 n_earlier_bytes
    [ -z "$1" ] || say "$1"
    shift
    echo "\$ $*" >>"$setup_log"
    n_earlier_bytes=$(wc -c <"$setup_log")
    show_progress 9<&- &
    local display=$!
    trap 'end_progress "$display"; interrupted' INT TERM
    # In a subshell, so that the trap does not run with its messages redirected.
    ("$@" >>"$setup_log" 2>&1 </dev/null) || status=$?
    trap - INT TERM
    end_progress "$display"
    return "$status"
}

interrupted() {
    say "Interrupted. Run this again to start over."
    exit 130
}

# On a terminal the elapsed time and the last line of the log, every second; elsewhere the same every 30 seconds.
show_progress() {
    local started=$SECONDS shown=0 compiling='' elapsed line
    local width=${COLUMNS:-$(tput cols 2>/dev/null || echo 80)}
    while sleep 1 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
        elapsed=$((SECONDS - started))
        if [ -z "$compiling" ] &&
            tail -c "+$((n_earlier_bytes + 1))" "$setup_log" | grep -q 'Building wheel for llama-cpp-python'; then
            compiling=yes
            clear_line
            say "Compiling llama.cpp: $(expected_duration), this once. Log: .venv/${setup_log##*/}"
        fi
        [ -t 2 ] || [ $((elapsed - shown)) -ge 30 ] || continue
        shown=$elapsed
        line=$(tail -n 1 "$setup_log" | tr -d '[:cntrl:]')
        [[ $line != *\[*/*\]\ * ]] || line="${line%%\]*}] ${line##*/}" # [7/193] and a compiler call, down to its file
        line=$(printf '  %d:%02d  %s' $((elapsed / 60)) $((elapsed % 60)) "$line")
        if [ -t 2 ]; then
            printf '\r\033[K%s' "${line:0:width-1}" >&2
        else
            printf '%s\n' "$line" >&2
        fi
    done
}

end_progress() {
    kill "$1" 2>/dev/null
    wait "$1" 2>/dev/null
    clear_line
}

clear_line() {
    [ ! -t 2 ] || printf '\r\033[K' >&2
}

# For the CPU, llama.cpp was seen to take ten to twelve minutes of one core.
expected_duration() {
    local n_cores minutes
    n_cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
    minutes=$(((11 + n_cores) / n_cores))
    if [ -n "$backend" ]; then
        echo "up to half an hour"
    elif [ "$minutes" -gt 1 ]; then
        echo "about $minutes minutes on $n_cores cores"
    else
        echo "about a minute on $n_cores cores"
    fi
}
