# Sourced by scripts/demo and scripts/test: installs what is missing, then configures build/ in release mode.
#
# On Debian and Ubuntu the packages are installed with apt-get; elsewhere they are named and the script stops.

packages="g++ meson ninja-build pkg-config libeigen3-dev libfmt-dev libtbb-dev zlib1g-dev nlohmann-json3-dev libcli11-dev
          doctest-dev libstb-dev gnuplot-nox dataset-fashion-mnist"

install_packages() {
  missing=""
  if command -v dpkg-query >/dev/null 2>&1; then
    for package in $packages; do
      dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
    done
  elif ! command -v meson >/dev/null 2>&1; then
    missing="$packages"
  fi
  [ -n "$missing" ] || return 0
  if ! command -v apt-get >/dev/null 2>&1; then
    echo "This is neither Debian nor Ubuntu. Please install what these Debian packages hold, then run this again:" >&2
    echo " " $packages >&2
    exit 1
  fi
  as_root=""
  [ "$(id -u)" = 0 ] || as_root="sudo"
  echo "Installing:$missing"
  $as_root apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

install_packages
[ -f build/build.ninja ] || meson setup build --buildtype=release >build-setup.log || { cat build-setup.log >&2; exit 1; }
rm -f build-setup.log
