#!/usr/bin/env bash
# Runs the AVX-512 kernels on a machine without AVX-512: in Bochs, a full emulator.
#
#   tests/emulate-avx512.sh            kernel tests, then whole tiny models; exit 0 when all passed on the set avx512
#   tests/emulate-avx512.sh kernels    the kernel tests only
#   tests/emulate-avx512.sh models     the models only
#
# Environment: CBTOP_AVX512_CACHE (${XDG_CACHE_HOME:-~/.cache}/cbtop/avx512), PROPTEST_CASES (48), MODELS (a regular
# expression of golden models' file names; default: two), TIMEOUT (7200 seconds), CBTOP_SHARED (as for the tests).
#
# A Debian kernel boots in the emulator with the test binaries, linked statically, in its initial ramdisk. The emulator
# is built from Debian's source once: without the debugger it is several times faster than Debian's own build. Needs
# apt-get and Debian's archive key, a C++ compiler, make, cpio and python3; no root. Takes one CPU for some ten
# minutes, about one for each golden model: not a part of ./test. It shows that results are right; it says nothing about speed.
set -euo pipefail

repo=$(cd "$(dirname "$0")/.." && pwd)
cache=${CBTOP_AVX512_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/cbtop/avx512}
what=${1:-all}
case $what in all | kernels | models) ;; *)
    sed -n '2,17s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
mkdir -p "$cache"/apt/lists/partial "$cache"/apt/cache/archives/partial "$cache"/files
work=$(mktemp -d "$cache/run.XXXXXX")
bochs_pid=
cleanup() {
    if [ -n "$bochs_pid" ]; then kill -9 "$bochs_pid" 2> /dev/null || true; fi
    rm -rf "$work"
}
trap cleanup EXIT

# --- Fetching: apt checks its signed index, and every file is checked once more against the sums of the files tried here.

apt() { # COMMAND ARGUMENT...
    local command=$1
    shift
    "$command" -oDir::Etc::SourceList="$cache/apt/sources.list" -oDir::Etc::SourceParts=/dev/null \
        -oDir::State::Lists="$cache/apt/lists" -oDir::Cache="$cache/apt/cache" -oAPT::Architecture=amd64 \
        -oAPT::Sandbox::User= -qq "$@"
}

update_index() {
    [ -z "${updated:-}" ] || return 0
    local mirror key=/usr/share/keyrings/debian-archive-keyring.gpg
    mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' \
        | grep -v security | head -n 1)}
    if [ -z "$mirror" ]; then
        echo "no Debian mirror in apt's sources: set DEBIAN_MIRROR to one" >&2
        return 1
    fi
    # Fixed releases, so that the files stay the same whatever this machine runs.
    printf '%s\n' "deb [signed-by=$key] $mirror bookworm main" "deb-src [signed-by=$key] $mirror trixie main" \
        > "$cache/apt/sources.list"
    apt apt-get update
    updated=1
}

# fetch FILE SHA256 PACKAGE: a package of Debian 12, or with a name that ends in .xz a source of Debian 13.
fetch() {
    local file=$1 sum=$2 package=$3
    if [ ! -f "$cache/files/$file" ]; then
        echo "fetching $file" >&2
        update_index
        rm -rf "$cache/apt/new" && mkdir "$cache/apt/new"
        case $file in
            *.xz) (cd "$cache/apt/new" && apt apt-get source --tar-only "$package") ;;
            *) (cd "$cache/apt/new" && apt apt-get download "$package") ;;
        esac
        mv "$cache/apt/new/$file" "$cache/files/"
    fi
    if ! printf '%s  %s\n' "$sum" "$cache/files/$file" | sha256sum --check --status; then
        echo "$cache/files/$file has another sha256 than $sum; delete it to fetch it again" >&2
        return 1
    fi
}

# unpack FILE: a package, next to the others.
unpack() {
    if [ ! -f "$cache/unpacked/.$1" ]; then
        mkdir -p "$cache/unpacked"
        dpkg-deb -x "$cache/files/$1" "$cache/unpacked"
        touch "$cache/unpacked/.$1"
    fi
}

while read -r file sum package; do
    fetch "$file" "$sum" "$package"
    case $file in *.deb) unpack "$file" ;; esac
done << 'FILES'
bochs_3.0+dfsg.orig.tar.xz 78f6c73d4a6472d5130a87ab9dc306d02c7c71ed8e25b3a8ef642e2a7acd282b bochs=3.0+dfsg-1
bochsbios_2.7+dfsg-4+deb12u1_all.deb ab91713fab14c3ad27146fa60ad9f1ce3750fdb6f9e21bef0d5aa0d4af2ff429 bochsbios=2.7+dfsg-4+deb12u1
vgabios_0.8a+ds-2_all.deb 921cca705c76139df423782979c3e4fe93a246ae3adc143ba17a321decf3544b vgabios=0.8a+ds-2
busybox-static_1%3a1.35.0-4+deb12u1+b1_amd64.deb 3d3fdbe91d4660c873e14b092c213fe81c1da6362daa236eb25d0171eb108744 busybox-static=1:1.35.0-4+deb12u1+b1
linux-image-6.1.0-50-cloud-amd64_6.1.176-1_amd64.deb efe19f605b6f54a8352e68d85a629abb2d30b72a085faef603a9152590baa791 linux-image-6.1.0-50-cloud-amd64=6.1.176-1
isolinux_3%3a6.04~git20190206.bf6db5b4+dfsg1-3_all.deb cb14af88adc2c3844976cd2de61571d2af94d2fb65c277fe4acf3dc8a5d25aae isolinux=3:6.04~git20190206.bf6db5b4+dfsg1-3
syslinux-common_3%3a6.04~git20190206.bf6db5b4+dfsg1-3_all.deb f7e4ead7fdfe5cb6117d8d2485d75e53570a8cf680c81a432f92c1774f878875 syslinux-common=3:6.04~git20190206.bf6db5b4+dfsg1-3
xorriso_1.5.4-4_amd64.deb 9668c8c8d578e80e61bfffb7353bb5128cb16f3195ccd7979af2dadd9ee30875 xorriso=1.5.4-4
libisoburn1_1.5.4-4_amd64.deb 32bd9f96b2c29700f6ab5848674a4439eda37b1e353c99d89e4afc996b01fb53 libisoburn1=1.5.4-4
libisofs6_1.5.4-1_amd64.deb c3786ebd1340a70d7c91bb489310e33aa48f1a33b219013b9dd44e417961cc7f libisofs6=1.5.4-1
libburn4_1.5.4-1_amd64.deb 55c516c9b770a889b74d0d472158ed342f0704b7493076f847abf64c251eafc3 libburn4=1.5.4-1
libjte2_1.22-3_amd64.deb 233b22e3465d909284f6a81621ea3cb985e477a46da079e527cfbb19720c59a2 libjte2=1.22-3
FILES
debian=$cache/unpacked

# --- The emulator.

bochs=$cache/bochs-3.0/bochs
if [ ! -x "$bochs" ]; then
    echo "building the emulator (once; some minutes)" >&2
    rm -rf "$cache/bochs-3.0" && mkdir "$cache/bochs-3.0"
    tar -xf "$cache/files/bochs_3.0+dfsg.orig.tar.xz" -C "$cache/bochs-3.0" --strip-components=1
    (
        cd "$cache/bochs-3.0"
        # The CPU model that boots Debian's kernel is Skylake-X, which has no VNNI: with this its CPUID says so where the
        # feature is added. (The Ice Lake and Sapphire Rapids models hang in the kernel's page fault handler.)
        sed -i '/leaf->ebx = get_std_cpuid_leaf_7_ebx/,/leaf->ecx/s/leaf->ecx = 0;/leaf->ecx = get_std_cpuid_leaf_7_ecx();/' \
            cpu/cpudb/intel/corei7_skylake-x.cc
        ./configure --enable-x86-64 --enable-cpu-level=6 --enable-avx --enable-evex --enable-all-optimizations \
            --enable-pci --enable-cdrom --disable-docbook --disable-plugins --disable-sb16 --disable-es1370 \
            --disable-debugger --with-nogui CFLAGS=-O2 CXXFLAGS=-O2
        nice -n 10 make -j"$(nproc)" bochs
    ) > "$cache/bochs-build.log" 2>&1 || {
        tail -n 20 "$cache/bochs-build.log" >&2
        rm -f "$bochs"
        exit 1
    }
fi

# --- The tests, as static programs.

target=x86_64-unknown-linux-gnu
echo "building the tests" >&2
(cd "$repo" && RUSTFLAGS='-C target-feature=+crt-static' \
    cargo test --no-run --target $target --lib --test architectures --test golden --test quant_models \
    --message-format json) > "$work/build.json"
# Prints NAME EXECUTABLE of every test binary.
python3 - "$work/build.json" > "$work/binaries" << 'PY'
import json, sys
for line in open(sys.argv[1]):
    m = json.loads(line)
    if m.get("executable") and m.get("profile", {}).get("test"):
        print(m["target"]["name"], m["executable"])
PY

root=$work/root
mkdir -p "$root"/bin "$root"/proc "$root"/dev "$root"/tmp "$root$repo/tests"
cp "$debian/bin/busybox" "$root/bin/"
while read -r name executable; do
    strip -o "$root/bin/$name" "$executable"
done < "$work/binaries"
cp -r "$repo/tests/fixtures" "$root$repo/tests/"
shared=${CBTOP_SHARED:-$repo/../shared}
models=${MODELS:-(gemma3|llama).Q4_K_M.gguf}
if [ -d "$shared/golden" ]; then
    mkdir -p "$root/shared/models"
    cp -rL "$shared/golden" "$root/shared/"
    for model in "$shared"/models/*.gguf; do
        if [[ ${model##*/} =~ ^($models)$ ]]; then cp -L "$model" "$root/shared/models/"; fi
    done
    golden=$(cd "$root/shared/models" && for m in *.gguf; do
        # The table in the test names the test of each file.
        sed -nE "s/^ +([a-z0-9_]+): \"$m\";/\1/p" "$repo/tests/golden.rs"
    done | tr '\n' ' ')
else
    echo "skipped: golden models, $shared/golden is not there (set CBTOP_SHARED)" >&2
    golden=
fi

# Each line of `run` becomes one program of the guest.
{
    cat << 'INIT'
#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev
grep -m1 'model name' /proc/cpuinfo
echo "flags: $(grep -m1 flags /proc/cpuinfo | tr ' ' '\n' | grep -E '^(avx|fma|f16c)' | tr '\n' ' ')"
failed=0
run() {
    echo "== $*"
    "$@" --test-threads 1 --nocapture 2>&1 || { failed=$((failed + 1)); echo "== FAILED: $*"; }
}
INIT
    echo "export PROPTEST_CASES=${PROPTEST_CASES:-48} CBTOP_SHARED=/shared RUST_BACKTRACE=0 HOME=/tmp"
    echo "cd $repo"
    if [ "$what" != models ]; then
        echo "run cbtop engine::cpu::"
    fi
    if [ "$what" != kernels ]; then
        echo "run quant_models the_engine"
        echo "run architectures both_paths"
        if [ -n "$golden" ]; then echo "run golden --exact $golden"; fi
    fi
    echo 'echo "== END: $failed failed"'
    echo 'sleep 2; poweroff -f'
} > "$root/init"
chmod +x "$root/init"

# --- The machine.

iso=$work/iso
mkdir "$iso"
(cd "$root" && find . | cpio -o -H newc --quiet) | gzip -1 > "$iso/initrd"
cp "$debian"/boot/vmlinuz-* "$iso/vmlinuz"
cp "$debian/usr/lib/ISOLINUX/isolinux.bin" "$debian/usr/lib/syslinux/modules/bios/ldlinux.c32" "$iso/"
printf 'default linux\nprompt 0\nlabel linux\n kernel vmlinuz\n initrd initrd\n append %s\n' \
    'console=ttyS0 quiet mitigations=off nokaslr tsc=reliable' > "$iso/isolinux.cfg"
LD_LIBRARY_PATH=$debian/usr/lib/x86_64-linux-gnu "$debian/usr/bin/xorriso" -as mkisofs -quiet -o "$work/boot.iso" \
    -b isolinux.bin -c boot.cat -no-emul-boot -boot-load-size 4 -boot-info-table "$iso" 2> "$work/xorriso.log" || {
    cat "$work/xorriso.log" >&2
    exit 1
}
serial=$cache/serial.log
rm -f "$serial" "$cache/bochs.log"
cat > "$work/bochsrc" << RC
megs: 1536
cpu: model=corei7_skylake_x, add_features="avx512vnni", count=1, ips=50000000, reset_on_triple_fault=0
romimage: file="$debian/usr/share/bochs/BIOS-bochs-latest"
vgaromimage: file="$debian/usr/share/vgabios/vgabios.bin"
display_library: nogui
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=cdrom, path="$work/boot.iso", status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev="$serial"
clock: sync=none
log: "$cache/bochs.log"
panic: action=fatal
error: action=report
info: action=ignore
debug: action=ignore
RC

echo "running; the guest's console is $serial" >&2
nice -n 19 "$bochs" -q -f "$work/bochsrc" > "$cache/bochs.out" 2>&1 < /dev/null &
bochs_pid=$!
end=$((SECONDS + ${TIMEOUT:-7200}))
until grep -qs '^== END' "$serial"; do
    sleep 2
    if ! kill -0 "$bochs_pid" 2> /dev/null; then
        sleep 1
        grep -qs '^== END' "$serial" && break
        echo "the emulator ended early; see $cache/bochs.out and $cache/bochs.log" >&2
        tail -n 20 "$serial" "$cache/bochs.out" >&2 || true
        exit 1
    fi
    if [ $SECONDS -ge $end ]; then
        echo "not finished after $((SECONDS - end + ${TIMEOUT:-7200})) s; the end of $serial:" >&2
        tail -n 20 "$serial" >&2
        exit 1
    fi
done

# --- What ran.

log=$work/log
tr -d '\r' < "$serial" > "$log"
cat "$log"
status=0
grep -q '^== END: 0 failed' "$log" || status=1
if [ "$what" != models ]; then
    echo "kernels that ran: $(sed -n 's/^.*kernels: //p' "$log" | tr ' ' '\n' | grep -c /avx512 || true) of set avx512"
    grep -q 'kernels: .*/avx512' "$log" || { echo "no kernel of the set avx512 ran" >&2; status=1; }
fi
if [ "$what" != kernels ]; then
    for set in scalar avx2 avx512; do
        echo "models that ran on $set: $(grep -oE "model: [^ ]+ $set" "$log" | sort -u | wc -l)"
    done
    grep -q 'model: .* avx512' "$log" || { echo "no model ran on the set avx512" >&2; status=1; }
fi
if grep -q 'skipped: no AVX' "$log"; then
    echo "a test says that the emulated CPU lacks instructions" >&2
    status=1
fi
exit $status
