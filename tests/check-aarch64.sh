#!/usr/bin/env bash
# The aarch64 build, on an x86-64 machine: type-checks it and runs the kernels' tests under emulation.
#
#   tests/check-aarch64.sh              check, lint-free build, kernel tests
#   tests/check-aarch64.sh check        type-check only
#   tests/check-aarch64.sh test ARGS    kernel tests with arguments for the test program
#
# rustup's standard library for the target may be out of reach, Debian's is not: this fetches rustc, the standard library of
# both architectures, libc and qemu from a Debian suite (DEBIAN_SUITE, forky) with apt, which checks signatures and sha256
# sums, into CBTOP_AARCH64 (~/.cache/cbtop/aarch64; 220 MB, once), and unpacks them there; nothing is installed. Needs a
# Debian or Ubuntu with apt, dpkg-deb and Debian's archive keyring, and cargo with rust-lld.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
root=${CBTOP_AARCH64:-${XDG_CACHE_HOME:-$HOME/.cache}/cbtop/aarch64}
suite=${DEBIAN_SUITE:-forky}
target=aarch64-unknown-linux-gnu
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

fail() { echo "check-aarch64: $1" >&2; exit 2; }
for tool in apt-get apt-cache dpkg-deb cargo; do
    command -v "$tool" > /dev/null || fail "$tool is missing: this needs Debian or Ubuntu, and cargo"
done
[ -r "$keyring" ] || fail "$keyring is missing: install debian-archive-keyring"
lld=$(find "$(rustc --print sysroot)/lib/rustlib" -name rust-lld -type f | head -n 1)
[ -n "$lld" ] || fail "rust-lld is not in $(rustc --print sysroot)"

fetch() {
    local apt=$root/apt
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$root/debs"
    touch "$apt/status"
    echo "deb [signed-by=$keyring] http://deb.debian.org/debian $suite main" > "$apt/sources.list"
    cat > "$apt/apt.conf" <<CONF
Dir::State "$apt"; Dir::State::lists "$apt/lists"; Dir::State::status "$apt/status"; Dir::Cache "$apt/cache";
Dir::Etc::main "/dev/null"; Dir::Etc::parts "/dev/null"; Dir::Etc::sourceparts "/dev/null";
Dir::Etc::sourcelist "$apt/sources.list";
APT::Architecture "amd64"; APT::Architectures {"amd64"; "arm64";}; APT::Sandbox::User "root"; Acquire::Languages "none";
Acquire::Check-Valid-Until "false";
CONF
    export APT_CONFIG=$apt/apt.conf
    apt-get -qq update
    # Everything that Debian's rustc loads, so that it runs on a host with an older libc.
    local needed
    needed=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
        --no-enhances libstd-rust-dev:amd64 | grep -E '^[a-z0-9.+-]+$' | grep -v gconv | sort -u)
    local gcc
    gcc=$(apt-cache depends gcc:arm64 | sed -n 's/.*Depends: gcc-\([0-9]*\).*/\1/p' | head -n 1)
    (cd "$root/debs" && apt-get -qq download rustc:amd64 $needed qemu-user:amd64 \
        libstd-rust-dev:arm64 libc6:arm64 libc6-dev:arm64 libgcc-s1:arm64 "libgcc-$gcc-dev:arm64")
    unset APT_CONFIG
    (cd "$root/debs" && sha256sum -- *.deb)
    rm -rf "$root/host" "$root/arm64" "$root/sysroot"
    mkdir -p "$root/host" "$root/arm64" "$root/sysroot/lib/rustlib" "$root/bin"
    for deb in "$root"/debs/*_amd64.deb "$root"/debs/*_all.deb; do
        [ ! -e "$deb" ] || dpkg-deb -x "$deb" "$root/host"
    done
    for deb in "$root"/debs/*_arm64.deb; do dpkg-deb -x "$deb" "$root/arm64"; done
    [ -e "$root/arm64/lib" ] || ln -s usr/lib "$root/arm64/lib"
    ln -s "$root/host/usr/lib/rustlib/x86_64-unknown-linux-gnu" "$root/arm64/usr/lib/rustlib/$target" "$root/sysroot/lib/rustlib"
    touch "$root/complete"
}

# Debian's rustc with Debian's libraries; a linker that adds what gcc would.
wrappers() {
    local lib=$root/host/usr/lib/x86_64-linux-gnu crt=$root/arm64/usr/lib/aarch64-linux-gnu gcc
    gcc=$(dirname "$(find "$root/arm64/usr/lib/gcc" -name crtbeginS.o | head -n 1)")
    cat > "$root/bin/rustc" <<SH
#!/bin/sh
exec "$lib/ld-linux-x86-64.so.2" --library-path "$lib" "$root/host/usr/bin/rustc" --sysroot "$root/sysroot" "\$@"
SH
    cat > "$root/bin/link" <<SH
#!/bin/sh
# rustc names the flavour of the linker first.
[ "\$1" != -flavor ] || shift 2
exec "$lld" -flavor gnu -m aarch64linux --sysroot="$root/arm64" --dynamic-linker=/lib/ld-linux-aarch64.so.1 \\
    "$crt/Scrt1.o" "$crt/crti.o" "$gcc/crtbeginS.o" -L"$gcc" -L"$crt" "\$@" -lgcc "$gcc/crtendS.o" "$crt/crtn.o"
SH
    # Among the tests' dependencies criterion alone has C in it, which no kernel test calls: an empty object will do.
    cat > "$root/bin/cc" <<SH
#!/bin/sh
case \$1 in -E) echo '"gcc"'; exit ;; '-?') exit 1 ;; esac
out=
while [ \$# -gt 0 ]; do [ "\$1" != -o ] || out=\$2; shift; done
[ -z "\$out" ] || echo '#![no_std]' | "$root/bin/rustc" --crate-type lib --target $target --emit "obj=\$out" -
SH
    chmod +x "$root/bin/rustc" "$root/bin/link" "$root/bin/cc"
}

[ -e "$root/complete" ] || fetch
wrappers
"$root/bin/rustc" --version
export RUSTC=$root/bin/rustc CARGO_TARGET_DIR=$root/target
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$root/bin/link
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C linker-flavor=ld.lld"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$root/host/usr/bin/qemu-aarch64 -L $root/arm64"
export CC_aarch64_unknown_linux_gnu=$root/bin/cc AR_aarch64_unknown_linux_gnu=ar
cd "$here"
what=${1:-all}
[ $# -eq 0 ] || shift
case $what in
    check) cargo check --target "$target" --lib --bins ;;
    test) cargo test --target "$target" --lib -- "${@:-engine::cpu}" ;;
    all)
        cargo check --target "$target" --lib --bins
        cargo test --target "$target" --lib -- engine::cpu
        echo "checked: library and program type-check for $target; the tests of engine::cpu pass under $("$root/host/usr/bin/qemu-aarch64" --version | head -n 1)"
        ;;
    *) fail "'$what' is none of: check, test" ;;
esac
