#!/usr/bin/env bash
# tapas-agent probe over a real link between two network namespaces, of which one direction is
# limited. Namespaces, link and programs end with this script, however it ends.
# usage: probe_link_test.sh BIN_DIR    exit 77 = skipped
set -euo pipefail
bin=${1:?folder of the programs}
export PATH=$PATH:/usr/sbin:/sbin  # ip and tc, for users too

if [ "${2:-}" != inside ]; then
  for tool in ip tc jq nsenter unshare; do
    command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
  done
  # A process namespace dies as a whole with its first process, and that one with its parent.
  alone=(unshare --net --mount --pid --fork --kill-child)
  [ "$(id -u)" = 0 ] || alone+=(--user --map-root-user)
  link='mount -t proc proc /proc && mount -t sysfs sysfs /sys &&
        ip link add near type veth peer name far &&
        tc qdisc add dev near root tbf rate 1mbit burst 1mb latency 20ms'
  "${alone[@]}" -- sh -c "$link" 2>/dev/null ||
    { echo "skipped: no namespaces, veth or tc tbf for this user"; exit 77; }
  exec "${alone[@]}" -- "$0" "$bin" inside
fi

mount -t proc proc /proc
mount -t sysfs sysfs /sys
failures=0
unshare --net --mount sleep infinity &
other=$!
there() { nsenter --target $other --net --mount "$@"; }
until [ "$(readlink /proc/self/ns/net)" != "$(readlink /proc/$other/ns/net)" ]; do sleep 0.05; done

ip link add near type veth peer name far netns $other
ip addr add 10.77.0.1/24 dev near
ip link set near up
there mount -t sysfs sysfs /sys
there ip addr add 10.77.0.2/24 dev far
there ip link set far up

# limit DIRECTION MBIT: the queue is where that direction leaves. The bucket holds 10 MB, a fifth of
# what passes at 200 Mbit/s, so that a plain mean would be far off.
limit() {
  tc qdisc del dev near root 2>/dev/null || true
  there tc qdisc del dev far root 2>/dev/null || true
  local where=()
  [ "$1" = to ] || where=(there)
  "${where[@]}" tc qdisc add dev "$([ "$1" = to ] && echo near || echo far)" root \
    tbf rate "$2mbit" burst 10mb latency 20ms
}

# probe: with a listener of its own; fills `report`, and the exit code is the probe's.
probe() {
  local status=0 line token=
  exec {listener}< <(there "$bin/tapas-agent" probe --listen 10.77.0.2:28100 --allow 10.77.0.1 \
    --once --for 60)
  while [ -z "$token" ] && read -r line <&"$listener"; do
    [[ $line != *--token* ]] || token=${line##*--token }
  done
  report=$(TAPAS_PROBE_TOKEN=$token "$bin/tapas-agent" probe 10.77.0.2:28100 -o json) || status=$?
  cat <&"$listener" >/dev/null  # Until it has ended.
  exec {listener}<&-
  return $status
}

# The probe itself says when a processor and not the link was the bound, as beside other tests: then
# it is tried again.
tell() {
  local attempt status
  for attempt in 1 2 3 4 5; do
    status=0
    probe || status=$?
    jq -r '.directions[].sentence' <<<"$report"
    jq -e 'any(.directions[]; .verdict == "unclear")' <<<"$report" >/dev/null || break
    echo "attempt $attempt is unclear"
  done
  return $status
}

# expect DIRECTION MBIT: slow and within a tenth of the limit there, healthy the other way, and
# never more than a tenth of the nominal speed for two seconds.
expect() {
  local status=0
  tell || status=$?
  if [ $status = 1 ] && jq -e --arg slow "$1" --argjson limit "$2" '
      .schema == "tapas.probe/1" and .nominal_bytes_per_s == 1.25e9 and
      .tried_bytes_per_s == 1.25e8 and (.directions | length) == 2 and
      all(.directions[]; .bytes < 1.25e8 * 2 * 1.1) and
      all(.directions[];
        if .direction == $slow
        then .verdict == "slow" and (.bytes_per_s * 8e-6 / $limit - 1 | fabs) < 0.1
        else .verdict == "healthy" end)' <<<"$report" >/dev/null; then
    echo "ok      $1 limited to $2 Mbit/s"
  else
    echo "FAILED  $1 limited to $2 Mbit/s: exit code $status"
    echo "$report"
    failures=$((failures + 1))
  fi
}

for mbit in 200 800; do
  for direction in to from; do
    limit $direction $mbit
    expect $direction $mbit
  done
done

tc qdisc del dev near root 2>/dev/null || true
there tc qdisc del dev far root
status=0
tell || status=$?
if [ $status = 0 ] && jq -e 'all(.directions[]; .verdict == "healthy")' <<<"$report" >/dev/null; then
  echo "ok      nothing limited"
else
  echo "FAILED  nothing limited: exit code $status"
  echo "$report"
  failures=$((failures + 1))
fi
[ $failures = 0 ]
