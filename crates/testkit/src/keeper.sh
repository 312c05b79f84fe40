# Keeps one throwaway PostgreSQL cluster for as long as standard input stays open.
#
#   sh keeper.sh BIN PARENT PORT CONF [PRIMARY]
#
# BIN     the folder of initdb, postgres and pg_isready
# PARENT  where to make the cluster's folder
# CONF    lines to append to postgresql.conf
# PRIMARY the port of a running cluster of which this one becomes a streaming standby; without it, a new cluster
#
# Says "folder PATH", then "ok" or "failed" once the server is up, and again for each line it reads: "stop"
# and "restart", both immediate, which PostgreSQL takes as a crash, and "promote", for a standby.
# One process does all of it in turn. So, at whatever moment the holder of the pipe dies (kill -9 included),
# the step at hand ends, the pipe is found closed, and neither a server nor a folder stays behind.

bin=$1 parent=$2 port=$3 conf=$4 primary=$5
server=

# A holder that is gone must not take its keeper along. A no-op and not '', which the server would inherit.
trap : HUP INT TERM PIPE

# Nothing here outlives the machine: only the running server, not these programs, has to sync to disk.
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

# A child of this shell and not of pg_ctl: then `wait` is certain to see it end, whatever runs as process 1.
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
    # The orphans of a killed server hold its memory for another moment, and no server starts beside them.
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
