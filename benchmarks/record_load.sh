#!/usr/bin/env bash
# Records this machine for four minutes under a mixed load (Python, a compressor, sorting, OpenSSL) and writes OUT/load.txt.
set -euo pipefail
out=$1
seconds=${FLAMESLICE_BENCH_SECONDS:-260}
here=$(cd "$(dirname "$0")" && pwd)
end() { kill "${loads[@]}" 2>/dev/null || true; }
trap end EXIT
loads=()
for _ in 1 2; do
    timeout "$seconds" python3 "$here/load.py" & loads+=($!)
done
timeout "$seconds" sh -c 'while :; do head -c 30000000 /usr/bin/perf | gzip -6 >/dev/null; done' & loads+=($!)
timeout "$seconds" sh -c 'while :; do find /usr/include -name "*.h" | xargs -n 200 cat | sort | tail -n 1 >/dev/null; done' & loads+=($!)
if command -v openssl >/dev/null; then
    timeout "$seconds" openssl speed -seconds 2 sha256 rsa2048 >/dev/null 2>&1 & loads+=($!)
fi
perf record -q -a -N -F 3999 -g -e cpu-clock -o "$out/load.data" -- sleep $((seconds - 2))
perf script -f --no-inline -i "$out/load.data" >"$out/load.txt" 2>/dev/null
rm -f "$out/load.data"
