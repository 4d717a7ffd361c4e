#!/bin/sh
# The tests of the guest, one function each; init calls this file with the name of a test.
# A test passes if its function ends; any command that fails ends the test. `skip` ends it with a reason.

set -eu
address=10.77.0.1
fabric='verbs;ofi_rxm'
bytes=$((64 << 20))
options=
if [ "$WITH_FABRIC" = 1 ]; then
    options="--fabric $fabric --fabric-address $address"
    export FRIEZE_FABRIC="$fabric"
fi

fail() { echo "$*" >&2; exit 1; }
skip() { echo "$*"; exit 77; }
now() { cut -d' ' -f1 /proc/uptime | tr -d .; }

# within SECONDS COMMAND...: runs the command until it succeeds.
within() {
    end=$(($(now) + $1 * 100))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$(now)" -lt $end ] || fail "not within the time: $*"
        usleep 50000
    done
}

# timed LABEL COMMAND...: prints how long the command takes; `took` has it in hundredths of a second.
timed() {
    label=$1
    shift
    begin=$(now)
    timeout 120 "$@" || fail "$label failed with code $?"
    took=$(($(now) - begin))
    echo "$label: $((took / 100)).$(printf %02d $((took % 100))) s"
}

# Packets that rxe0 has sent.
packets() { cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts; }

# at NUMBER COMMAND...: a client of that server.
at() {
    at_number=$1
    shift
    frieze --quiet --server "127.0.0.1:747$at_number" "$@"
}

# serve NUMBER [OPTION...]: starts a server on a directory of its own, or on the one it had.
serve() {
    number=$1
    shift
    # Small segments: the directory is in memory. 256 MiB: three servers fit into the guest.
    echo "segment_bytes = $((16 << 20))" >/tmp/frieze.toml
    : >"/tmp/ready$number"
    # shellcheck disable=SC2086  # $options is a list
    frieze serve --config /tmp/frieze.toml --dir "/tmp/d$number" --listen "127.0.0.1:747$number" --name "s$number" \
        --memory 256 $options "$@" >"/tmp/ready$number" 2>>"/tmp/log$number" &
    echo $! >"/tmp/pid$number"
    until grep -q ready "/tmp/ready$number"; do
        kill -0 "$(pid "$number")" 2>/dev/null || fail "server $number ended before it was ready"
        usleep 50000
    done
}

# pid NUMBER: the process of a server.
pid() { cat "/tmp/pid$1"; }

# stop NUMBER: ends a server as an operator does, and removes its directory.
stop() {
    kill "$(pid "$1")"
    wait "$(pid "$1")"
    rm -r "/tmp/d$1"
}

# Three servers that are one cluster, each with a copy of everything.
serve_three() {
    serve 1
    serve 2 --join 127.0.0.1:7471
    serve 3 --join 127.0.0.1:7471
    at 1 --timeout 60 cluster wait --for whole
}

# Puts /tmp/file at server $1, gets it at server $2 and compares.
copy() {
    before=$(packets)
    timed "put of $(($(stat -c %s /tmp/file) >> 20)) MiB" frieze --quiet --server "127.0.0.1:747$1" put /tmp/file /file
    over_rdma "$before"
    before=$(packets)
    timed "get" frieze --quiet --server "127.0.0.1:747$2" get /file /tmp/copy
    over_rdma "$before"
    cmp /tmp/file /tmp/copy
    rm /tmp/copy
}

# With a fabric: fails unless rxe0, which had sent $1 packets, has sent nine tenths of /tmp/file since, in packets of
# 4096 bytes. frieze would pass these tests over TCP too.
over_rdma() {
    sent=$(($(packets) - $1))
    [ "$WITH_FABRIC" = 1 ] || return 0
    echo "  in $sent packets of rxe0"
    least=$(($(stat -c %s /tmp/file) * 9 / 10 / 4096))
    [ $sent -ge $least ] || fail "rxe0 sent $sent packets and not $least: the bytes did not go over RDMA"
}

# pair READY SERVER CLIENT: runs the two command lines, the second once `READY` succeeds.
pair() {
    # shellcheck disable=SC2086  # command lines
    $2 >&2 &
    peer=$!
    within 30 "$1"
    # shellcheck disable=SC2086
    timeout 120 $3
    kill $peer 2>/dev/null || true
    wait $peer 2>/dev/null || true
}
rdma_listens() { rdma resource show cm_id | grep -q LISTEN; }
pingpong_listens() { netstat -ltn | grep -q :47592; }

test_info() {
    ibv_devinfo >/tmp/devinfo
    grep -E 'hca_id|state|active_mtu|link_layer' /tmp/devinfo | tr -s '\t ' ' '
    grep -q PORT_ACTIVE /tmp/devinfo
    fi_info -p "$fabric" >/tmp/providers
    grep -q FI_EP_RDM /tmp/providers
}

test_pingpong() {
    pair rdma_listens "rping -s -a $address -C 5" "rping -c -a $address -C 5"
    echo "rping: 5 of 5"
    line="fi_pingpong -p $fabric -e rdm -I 20 -S 65536"
    pair pingpong_listens "$line" "$line $address"
}

test_bare() {
    [ -e /usr/bin/fi_rma_bw ] || skip "fi_rma_bw is not in the image: install fabtests on the machine that builds it"
    for operation in write read; do
        line="fi_rma_bw -p $fabric -e rdm -o $operation -S 1048576 -I 20"
        pair rdma_listens "$line -s $address" "$line $address"
    done
}

test_units() {
    [ -n "$(ls /units)" ] || skip "the workspace has no crate frieze-fabric"
    export FRIEZE_TEST_FABRIC="$fabric" FRIEZE_TEST_FABRIC_ADDRESS=$address
    cd /tmp
    for unit in /units/*; do
        "$unit" >/tmp/unit 2>&1 || { cat /tmp/unit >&2; fail "$unit failed"; }
        grep '^test result' /tmp/unit || true
    done
}

test_put_get() {
    head -c $bytes /dev/urandom >/tmp/file
    echo "one server"
    serve 0
    copy 0 0
    stop 0
    echo "a chain of three servers"
    serve_three
    copy 1 3
}

# True if the file $2 has $3 bytes at server $1.
has_bytes() { [ "$(at "$1" --json stat "$2" | sed -n 's/.*"size":\([0-9]*\).*/\1/p')" -ge "$3" ]; }

# A put to server $1 of $2, four times /tmp/file; returns in the middle of it, `client` is its process.
begin_put() {
    cat /tmp/file /tmp/file /tmp/file /tmp/file | at_once "$1" put - "$2" &
    client=$!
    within 60 has_bytes "$1" "$2" $((8 << 20))
    kill -0 $client || fail "the put ended before the kill"
}
# A client that retries for 10 s, in the place of this shell.
at_once() {
    at_number=$1
    shift
    exec frieze --quiet --server "127.0.0.1:747$at_number" --timeout 10 "$@"
}

test_kill() {
    head -c $bytes /dev/urandom >/tmp/file
    serve 0
    at 0 put /tmp/file /whole

    begin_put 0 /part
    kill -9 "$(pid 0)"
    begin=$(now)
    if wait $client; then fail "the put ended well without its server"; fi
    echo "server killed in a put: the client has its error after $((($(now) - begin) / 100)) s"
    serve 0
    at 0 get /whole /tmp/copy
    cmp /tmp/file /tmp/copy
    rm /tmp/copy

    # If the get ends before the kill, another get follows.
    tries=0
    size=$bytes
    while [ "$size" -ge $bytes ]; do
        tries=$((tries + 1))
        [ $tries -le 10 ] || fail "no kill came in the middle of a get"
        rm -f /tmp/part
        at_once 0 get /whole - >/tmp/part &
        client=$!
        until [ "$(stat -c %s /tmp/part)" -ge $((bytes / 8)) ] || ! kill -0 $client 2>/dev/null; do :; done
        kill -9 $client 2>/dev/null || true
        wait $client || true
        size=$(stat -c %s /tmp/part)
    done
    rm /tmp/part
    echo "client killed in a get: after $((size >> 20)) MiB"
    begin_put 0 /other
    kill -9 $client
    wait $client || true
    echo "client killed in a put"
    copy 0 0
    stop 0

    # In a chain the client sees no error: two servers have the bytes.
    serve_three
    begin_put 1 /part
    kill -9 "$(pid 3)"
    begin=$(now)
    wait $client || fail "the put failed, though two of three servers were left"
    echo "one of three servers killed in a put: the put ends after $((($(now) - begin) / 100)) s"
    at 2 get /part /tmp/copy
    cat /tmp/file /tmp/file /tmp/file /tmp/file | cmp - /tmp/copy
}

# Best of three calls of `frieze ls` with 20 paths, a round trip each, in hundredths of a second: on a machine under
# load the start of a program varies by more than one round trip.
fastest_ls() {
    fastest=100000
    for _ in 1 2 3; do
        # shellcheck disable=SC2046  # 20 paths
        timed ls frieze --quiet --server 127.0.0.1:7470 ls $(yes / | head -n 20) >/dev/null
        [ $took -ge $fastest ] || fastest=$took
    done
    echo $fastest
}

test_netem() {
    # The first payloads go by TCP, until the fabric has passed its test.
    head -c $bytes /dev/urandom >/tmp/file
    serve 0
    copy 0 0
    quick=$(fastest_ls)
    # By its path: the shell would call the applet of busybox, which has no netem.
    /usr/bin/tc qdisc add dev lo root netem delay 20ms loss 1%
    echo "with 20 ms and a loss of 1 % on lo"
    ping -c 5 127.0.0.1 | tail -n 1
    copy 0 0
    slow=$(fastest_ls)
    /usr/bin/tc qdisc del dev lo root
    echo "ls of 20 paths: ${quick}0 ms, with the delay ${slow}0 ms"
    # Half of 20 round trips of 40 ms.
    [ $((slow - quick)) -ge 40 ] || fail "the delay is not visible"
}

# The fabric's network is taken away in the middle of a put, and comes back: no request fails. (The kernel does not
# remove the device itself while it is in use.) The last test: the network needs a moment to be whole again.
test_pull() {
    [ "$WITH_FABRIC" = 1 ] || skip "without a fabric there is none to take away"
    head -c $bytes /dev/urandom >/tmp/file
    serve 0
    copy 0 0
    begin_put 0 /part
    ip link set dummy0 down
    begin=$(now)
    wait $client || fail "the put failed when the fabric was taken away"
    echo "fabric taken away in a put: the put ends after $((($(now) - begin) / 100)) s"
    at 0 get /part /tmp/copy
    cat /tmp/file /tmp/file /tmp/file /tmp/file | cmp - /tmp/copy
    rm /tmp/copy
    ip link set dummy0 up
    at 0 put /tmp/file /again
    at 0 get /again /tmp/copy
    cmp /tmp/file /tmp/copy
}

finish() {
    code=$?
    # Logs of servers explain a failure.
    [ $code = 0 ] || [ $code = 77 ] || tail -n 15 /tmp/log* >&2 2>/dev/null || true
    exit $code
}
trap finish EXIT
"test_$(echo "$1" | tr - _)"
