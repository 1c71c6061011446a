#!/usr/bin/env bash
# Installs into empty roots and asks systemd's own tools about the result.
# usage: install_test.sh SOURCE_DIR BUILD_DIR    exit 77 = skipped
set -euo pipefail
source_dir=${1:?source folder} build_dir=${2:?build folder}
command -v systemd-analyze >/dev/null || { echo "skipped: systemd-analyze is not installed"; exit 77; }

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failures=0
expect() {  # NAME COMMAND...: the command must succeed without a word
  local name=$1 output
  shift
  if output=$("$@" 2>&1) && [ -z "$output" ]; then
    echo "ok      $name"
  else
    printf 'FAILED  %s\n%s\n' "$name" "$output"
    failures=$((failures + 1))
  fi
}
install_into() { DESTDIR=$1 cmake --install "$build_dir" --prefix "$2" >"$dir/install.log"; }

# ---- a packager's install: an empty root and the prefix /usr
root=$dir/root
install_into "$root" /usr
version=$(cat "$source_dir/VERSION")
(cd "$root" && find . \( -type f -o -type l \) -printf '%P\n') |
  sed -E "s,^usr/lib/[^/]+-linux-gnu[^/]*/,usr/lib/,; s/\.so\.$version\$/.so.VERSION/" |
  sort >"$dir/found.txt"
{
  grep -v '^#' "$source_dir/tests/system/installed-files.txt"
  (cd "$source_dir" && find docs -type f -printf 'usr/share/doc/tapas/%P\n')
  (cd "$source_dir" && find config/examples -type f -printf 'usr/share/doc/tapas/examples/%P\n')
  (cd "$source_dir" && find config/catalogue -type f -printf 'usr/share/tapas/catalogue/%P\n')
} | sort >"$dir/expected.txt"
expect "the installed files are those of tests/system/installed-files.txt" \
  diff "$dir/expected.txt" "$dir/found.txt"
says() { grep -qxF "$2" "$1" || { echo "no line: $2"; grep -n ExecStart= "$1"; return 1; }; }
units=$root/usr/lib/systemd/system
expect "tapasd.service names the installed program and /etc/tapas" \
  says "$units/tapasd.service" "ExecStart=/usr/bin/tapasd --config /etc/tapas/tapasd.json"
expect "tapas-agent.service names the installed program and /etc/tapas" \
  says "$units/tapas-agent.service" "ExecStart=/usr/bin/tapas-agent --config /etc/tapas/agent.json"

# ---- an operator's configuration survives the next install
echo '// mine' >"$root/etc/tapas/tapasd.json"
install_into "$root" /usr
expect "an edited configuration stays" says "$root/etc/tapas/tapasd.json" "// mine"

# ---- a prefix of its own: the units' programs exist there, so systemd can verify them
prefix=$dir/opt/tapas
install_into "" "$prefix"
units=$prefix/lib/systemd/system
for unit in tapasd.service tapas-agent.service; do
  # verify exits 0 even for unknown keys: it must also be silent.
  expect "systemd-analyze verify has nothing to say about $unit" \
    systemd-analyze verify --man=no "$units/$unit"
done
security() {  # THRESHOLD UNIT: exposure times ten
  systemd-analyze security --no-pager --offline=true --threshold="$1" "$2" >"$dir/security.txt" 2>&1 ||
    { tail -1 "$dir/security.txt"; return 1; }
}
expect "the daemon's exposure is 1.7 or less" security 17 "$units/tapasd.service"
expect "the agent's exposure is 2.2 or less" security 22 "$units/tapas-agent.service"
quiet() { "$@" >"$dir/out.txt" 2>&1 || cat "$dir/out.txt"; }
for program in tapasd tapas-agent tapasctl tapas-twin; do
  expect "$program runs from there" quiet "$prefix/bin/$program" --version
done

# ---- user, group and folders
# Not --dry-run only: as root both tools work for real inside the root.
if [ "$(id -u)" = 0 ]; then
  users() {
    systemd-sysusers --root="$root" tapas.conf >"$dir/out.txt" 2>&1 || { cat "$dir/out.txt"; return 1; }
    grep -q '^tapas:.*:/var/lib/tapas:' "$root/etc/passwd" || echo "no user tapas"
    grep -q '^tapas-operators:' "$root/etc/group" || echo "no group tapas-operators"
  }
  expect "systemd-sysusers makes user and group" users
  folders() {
    local group
    systemd-tmpfiles --root="$root" --create tapas.conf || return 1
    group=$(sed -n 's/^tapas:[^:]*:\([0-9]*\):.*/\1/p' "$root/etc/group")
    [ "$(stat -c '%a %g' "$root/dev/shm/tapas")" = "3777 $group" ] ||
      stat -c '%n has mode %a group %g' "$root/dev/shm/tapas"
    [ -d "$root/etc/tapas/agents" ] || echo "no folder for the agents' keys"
  }
  expect "systemd-tmpfiles makes the folders" folders
else
  expect "systemd-sysusers understands its file" \
    quiet systemd-sysusers --root="$root" --dry-run tapas.conf
fi

[ $failures -eq 0 ] || { echo "$failures failed; what was installed:"; cat "$dir/install.log"; exit 1; }
