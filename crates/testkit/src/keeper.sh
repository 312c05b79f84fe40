# Keeps one throwaway PostgreSQL cluster for as long as standard input stays open.
#
#   sh keeper.sh BIN PARENT PORT CONF [PRIMARY]
#
# BIN     the folder of initdb, postgres and pg_isready
# PARENT  where to make the cluster's folder
# CONF    lines to append to postgresql.conf
# PRIMARY the port of a running cluster of which this one becomes a streaming standby; without it, a new cluster
#
# Prints "folder PATH", then "ok" or "failed" once the server is up, and again for each line that it reads:
# "stop" and "restart", both immediate like a crash, and "promote", for a standby.
# A single process runs all steps in order. If the owner of the pipe dies at any moment (kill -9 included), the
# current step ends, the pipe is found closed, and neither a server nor a folder is left behind.

bin=$1 parent=$2 port=$3 conf=$4 primary=$5
server=

# The end of the owner must not end its keeper. A no-op rather than '', which the server would inherit.
trap : HUP INT TERM PIPE

# The cluster does not outlive the machine: only the running server has to sync to disk, not these programs.
copy() {
    if [ -n "$primary" ]; then
        "$bin/pg_basebackup" -D "$dir/data" -h 127.0.0.1 -p "$primary" -U tenure -R -c fast --no-sync
    else
        "$bin/initdb" -D "$dir/data" -U tenure -A trust -E UTF8 --locale=C.UTF-8 --no-sync
    fi
}

create() {
    copy >"$dir/log" 2>&1 </dev/null || return
    printf "%s\nport = %s\nunix_socket_directories = '%s'\n" "$conf" "$port" "$dir" \
        >>"$dir/data/postgresql.conf"
    : >"$dir/log"
}

# A child of this shell rather than of pg_ctl, so that `wait` sees its end, independent of process 1.
start() {
    "$bin/postgres" -D "$dir/data" >>"$dir/log" 2>&1 </dev/null &
    server=$!
    until "$bin/pg_isready" -q -h "$dir" -p "$port"; do
        kill -0 "$server" 2>/dev/null || return 1
        sleep 0.02
    done
}

stop() {
    [ -n "$server" ] || return 0
    # CONT for a server that a test has paused. Both fail harmlessly on one that a test has killed.
    kill -QUIT "$server" 2>/dev/null
    kill -CONT "$server" 2>/dev/null
    wait "$server"
    server=
}

restart() {
    stop
    # Orphans of a killed server hold its shared memory for a moment, and a new server cannot start meanwhile.
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        start && return
        sleep 0.1
    done
    return 1
}

promote() {
    "$bin/pg_ctl" -D "$dir/data" -w promote >>"$dir/log" 2>&1 </dev/null
}

answer() {
    if "$@"; then echo ok; else echo failed; fi
}

begin() {
    create && start
}

dir=$(mktemp -d "$parent/tenure-pg-XXXXXX" 2>&1) || {
    echo "failed $dir"
    exit 1
}
echo "folder $dir"
answer begin
while read -r verb; do
    case $verb in
    stop | restart | promote) answer "$verb" ;;
    *) echo "failed" ;;
    esac
done
stop
rm -rf "$dir"
